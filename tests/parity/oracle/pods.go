package main

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/features"
	testingclock "k8s.io/utils/clock/testing"
)

type availability struct {
	Active      bool `json:"active"`
	Terminating bool `json:"terminating"`
	Ready       bool `json:"ready"`
	Available   bool `json:"available"`
}

type batches struct {
	Calls     int  `json:"calls"`
	Successes int  `json:"successes"`
	Failed    bool `json:"failed"`
}

// setGate switches a feature gate.
func setGate(name string, enabled bool) {
	if err := utilfeature.DefaultMutableFeatureGate.Set(fmt.Sprintf("%s=%t", name, enabled)); err != nil {
		panic(err)
	}
}

func names(pods []*v1.Pod) []string {
	out := []string{}
	for _, pod := range pods {
		out = append(out, pod.Name)
	}
	return out
}

func init() {
	register("deletionCost", func(annotations map[string]string) (int32, error) {
		cost, _ := helper.GetDeletionCostFromPodAnnotations(annotations)
		return cost, nil
	})
	register("podGoesFirst", func(in struct {
		Pods   []*v1.Pod `json:"pods"`
		Ranks  []int     `json:"ranks"`
		Now    time.Time `json:"now"`
		ByCost bool      `json:"byCost"`
	}) ([2]bool, error) {
		setGate(string(features.PodDeletionCost), in.ByCost)
		ranked := controller.ActivePodsWithRanks{Pods: in.Pods, Rank: in.Ranks, Now: metav1.NewTime(in.Now)}
		return [2]bool{ranked.Less(0, 1), ranked.Less(1, 0)}, nil
	})
	register("podOrder", func(in struct {
		Pods    []*v1.Pod `json:"pods"`
		Related []*v1.Pod `json:"related"`
		Now     time.Time `json:"now"`
	}) ([]string, error) {
		setGate(string(features.PodDeletionCost), true)
		ranked := rankPods(in.Pods, in.Related)
		ranked.Now = metav1.NewTime(in.Now)
		sort.Sort(ranked)
		return names(ranked.Pods), nil
	})
	register("availability", func(in struct {
		Pod             *v1.Pod   `json:"pod"`
		MinReadySeconds int32     `json:"minReadySeconds"`
		Now             time.Time `json:"now"`
	}) (availability, error) {
		return availability{
			Active:      controller.IsPodActive(in.Pod),
			Terminating: controller.IsPodTerminating(in.Pod),
			Ready:       podutil.IsPodReady(in.Pod),
			Available:   podutil.IsPodAvailable(in.Pod, in.MinReadySeconds, metav1.NewTime(in.Now)),
		}, nil
	})
	register("nextAvailabilityCheck", func(in struct {
		Pods            []*v1.Pod `json:"pods"`
		MinReadySeconds int32     `json:"minReadySeconds"`
		Evaluated       time.Time `json:"evaluated"`
		Now             time.Time `json:"now"`
	}) (*int64, error) {
		clock := testingclock.NewFakePassiveClock(in.Now)
		next := controller.FindMinNextPodAvailabilityCheck(in.Pods, in.MinReadySeconds, in.Evaluated, clock)
		if next == nil {
			return nil, nil
		}
		microseconds := next.Microseconds()
		return &microseconds, nil
	})
	register("replicaSetStatus", func(in struct {
		ReplicaSet  *apps.ReplicaSet `json:"replicaSet"`
		Active      []*v1.Pod        `json:"active"`
		Terminating []*v1.Pod        `json:"terminating"`
		Failure     string           `json:"failure"`
		Counted     bool             `json:"counted"`
		Now         time.Time        `json:"now"`
	}) (apps.ReplicaSetStatus, error) {
		setGate(string(features.DeploymentReplicaSetTerminatingReplicas), in.Counted)
		var failure error
		if in.Failure != "" {
			failure = errors.New(in.Failure)
		}
		features := replicaset.DefaultReplicaSetControllerFeatures()
		status := calculateReplicaSetStatus(in.ReplicaSet, in.Active, in.Terminating, failure, features, in.Now)
		for i := range status.Conditions {
			stopClock(&status.Conditions[i].LastTransitionTime, in.Now)
		}
		return status, nil
	})
	register("slowStartBatch", func(in struct {
		Count int `json:"count"`
		// The calls that fail are all from this one on.
		FailFrom int `json:"failFrom"`
	}) (batches, error) {
		var out batches
		var lock sync.Mutex
		var err error
		out.Successes, err = slowStartBatch(in.Count, 1, func() error {
			lock.Lock()
			defer lock.Unlock()
			out.Calls++
			if out.Calls >= in.FailFrom {
				return errors.New("refused")
			}
			return nil
		})
		out.Failed = err != nil
		return out, nil
	})
}
