package main

import (
	"context"
	"sort"
	"strconv"
	"time"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	deploymentutil "k8s.io/kubernetes/pkg/controller/deployment/util"
	"k8s.io/kubernetes/pkg/features"
)

// rollout is a Deployment with its ReplicaSets.
type rollout struct {
	Deployment *apps.Deployment   `json:"deployment"`
	Old        []*apps.ReplicaSet `json:"old"`
	New        *apps.ReplicaSet   `json:"new"`
}

func (r *rollout) all() []*apps.ReplicaSet {
	all := append([]*apps.ReplicaSet{}, r.Old...)
	if r.New != nil {
		all = append(all, r.New)
	}
	return all
}

type fenceposts struct {
	Surge       int32 `json:"surge"`
	Unavailable int32 `json:"unavailable"`
}

type bounds struct {
	MaxSurge       int32 `json:"maxSurge"`
	MaxUnavailable int32 `json:"maxUnavailable"`
	MinAvailable   int32 `json:"minAvailable"`
}

type found struct {
	New    string   `json:"new"`
	Old    []string `json:"old"`
	Latest string   `json:"latest"`
}

type counts struct {
	Wanted      int32  `json:"wanted"`
	Actual      int32  `json:"actual"`
	Ready       int32  `json:"ready"`
	Available   int32  `json:"available"`
	Terminating *int32 `json:"terminating"`
}

type revisions struct {
	Each []*int64 `json:"each"`
	Max  int64    `json:"max"`
	Last int64    `json:"last"`
}

type annotations struct {
	Annotations map[string]string `json:"annotations"`
	Changed     bool              `json:"changed"`
}

type progress struct {
	Deadline    bool `json:"deadline"`
	Complete    bool `json:"complete"`
	Progressing bool `json:"progressing"`
	TimedOut    bool `json:"timedOut"`
}

func name(rs *apps.ReplicaSet) string {
	if rs == nil {
		return ""
	}
	return rs.Name
}

func setNames(sets []*apps.ReplicaSet) []string {
	out := []string{}
	for _, rs := range sets {
		out = append(out, rs.Name)
	}
	return out
}

var started = time.Now()

// stopClock puts the given time where the real one was noted; that is later than any time in an input.
func stopClock(moment *metav1.Time, now time.Time) {
	if !moment.Time.Before(started.Add(-time.Second)) {
		*moment = metav1.NewTime(now)
	}
}

func stopClocks(status *apps.DeploymentStatus, now time.Time) {
	for i := range status.Conditions {
		stopClock(&status.Conditions[i].LastUpdateTime, now)
		stopClock(&status.Conditions[i].LastTransitionTime, now)
	}
}

func init() {
	logger := klog.Background()
	ctx := context.Background()

	register("resolveFenceposts", func(in struct {
		Surge       *intstr.IntOrString `json:"surge"`
		Unavailable *intstr.IntOrString `json:"unavailable"`
		Desired     int32               `json:"desired"`
	}) (fenceposts, error) {
		surge, unavailable, err := deploymentutil.ResolveFenceposts(in.Surge, in.Unavailable, in.Desired)
		return fenceposts{surge, unavailable}, err
	})
	register("bounds", func(d *apps.Deployment) (bounds, error) {
		return bounds{
			MaxSurge:       deploymentutil.MaxSurge(*d),
			MaxUnavailable: deploymentutil.MaxUnavailable(*d),
			MinAvailable:   deploymentutil.MinAvailable(d),
		}, nil
	})
	register("newReplicas", func(in rollout) (int32, error) {
		return deploymentutil.NewRSNewReplicas(in.Deployment, in.all(), in.New)
	})
	register("proportion", func(in struct {
		Deployment *apps.Deployment `json:"deployment"`
		ReplicaSet *apps.ReplicaSet `json:"replicaSet"`
		ToAdd      int32            `json:"toAdd"`
		Added      int32            `json:"added"`
	}) (int32, error) {
		return deploymentutil.GetReplicaSetProportion(logger, in.ReplicaSet, *in.Deployment, in.ToAdd, in.Added), nil
	})
	register("find", func(in struct {
		Deployment  *apps.Deployment   `json:"deployment"`
		ReplicaSets []*apps.ReplicaSet `json:"replicaSets"`
	}) (found, error) {
		newRS := deploymentutil.FindNewReplicaSet(in.Deployment, in.ReplicaSets)
		_, old := deploymentutil.FindOldReplicaSets(in.Deployment, in.ReplicaSets)
		out := found{New: name(newRS), Old: setNames(old)}
		out.Latest = name(deploymentutil.FindActiveOrLatest(newRS, old))
		return out, nil
	})
	register("counts", func(sets []*apps.ReplicaSet) (counts, error) {
		return counts{
			Wanted:      deploymentutil.GetReplicaCountForReplicaSets(sets),
			Actual:      deploymentutil.GetActualReplicaCountForReplicaSets(sets),
			Ready:       deploymentutil.GetReadyReplicaCountForReplicaSets(sets),
			Available:   deploymentutil.GetAvailableReplicaCountForReplicaSets(sets),
			Terminating: deploymentutil.GetTerminatingReplicaCountForReplicaSets(sets),
		}, nil
	})
	register("revisions", func(sets []*apps.ReplicaSet) (revisions, error) {
		out := revisions{Max: deploymentutil.MaxRevision(logger, sets), Last: deploymentutil.LastRevision(logger, sets)}
		for _, rs := range sets {
			if revision, err := deploymentutil.Revision(rs); err == nil {
				out.Each = append(out.Each, &revision)
			} else {
				out.Each = append(out.Each, nil)
			}
		}
		return out, nil
	})
	register("orders", func(sets []*apps.ReplicaSet) (map[string][]string, error) {
		out := map[string][]string{}
		for order, sorted := range map[string]sort.Interface{
			"created":  controller.ReplicaSetsByCreationTimestamp(sets),
			"newer":    controller.ReplicaSetsBySizeNewer(sets),
			"older":    controller.ReplicaSetsBySizeOlder(sets),
			"revision": deploymentutil.ReplicaSetsByRevision(sets),
		} {
			before := append([]*apps.ReplicaSet{}, sets...)
			sort.Sort(sorted)
			out[order] = setNames(sets)
			copy(sets, before)
		}
		return out, nil
	})
	register("newAnnotations", func(in struct {
		Deployment *apps.Deployment `json:"deployment"`
		ReplicaSet *apps.ReplicaSet `json:"replicaSet"`
		Revision   int64            `json:"revision"`
		Exists     bool             `json:"exists"`
		Limit      int              `json:"limit"`
	}) (annotations, error) {
		changed := deploymentutil.SetNewReplicaSetAnnotations(
			ctx, in.Deployment, in.ReplicaSet, strconv.FormatInt(in.Revision, 10), in.Exists, in.Limit)
		return annotations{in.ReplicaSet.Annotations, changed}, nil
	})
	register("desiredReplicas", func(rs *apps.ReplicaSet) (*int32, error) {
		if desired, ok := deploymentutil.GetDesiredReplicasAnnotation(logger, rs); ok {
			return &desired, nil
		}
		return nil, nil
	})
	register("saturated", func(in rollout) (bool, error) {
		return deploymentutil.IsSaturated(in.Deployment, in.New), nil
	})
	register("conditions", func(in struct {
		Status *apps.DeploymentStatus `json:"status"`
		Steps  []struct {
			Set    *apps.DeploymentCondition    `json:"set"`
			Remove apps.DeploymentConditionType `json:"remove"`
		} `json:"steps"`
	}) ([]apps.DeploymentCondition, error) {
		for _, step := range in.Steps {
			if step.Set != nil {
				deploymentutil.SetDeploymentCondition(in.Status, *step.Set)
			} else {
				deploymentutil.RemoveDeploymentCondition(in.Status, step.Remove)
			}
		}
		return in.Status.Conditions, nil
	})
	register("progress", func(in struct {
		Deployment *apps.Deployment       `json:"deployment"`
		Status     *apps.DeploymentStatus `json:"status"`
		Now        time.Time              `json:"now"`
	}) (progress, error) {
		setNow(in.Now)
		return progress{
			Deadline:    deploymentutil.HasProgressDeadline(in.Deployment),
			Complete:    deploymentutil.DeploymentComplete(in.Deployment, in.Status),
			Progressing: deploymentutil.DeploymentProgressing(in.Deployment, in.Status),
			TimedOut:    deploymentutil.DeploymentTimedOut(ctx, in.Deployment, in.Status),
		}, nil
	})
	register("deploymentsFor", func(in struct {
		Deployments []*apps.Deployment `json:"deployments"`
		ReplicaSet  *apps.ReplicaSet   `json:"replicaSet"`
	}) ([]string, error) {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
		for _, d := range in.Deployments {
			if err := indexer.Add(d); err != nil {
				return nil, err
			}
		}
		out := []string{}
		// The error says no more than that there are none.
		matching, _ := deploymentutil.GetDeploymentsForReplicaSet(appslisters.NewDeploymentLister(indexer), in.ReplicaSet)
		for _, d := range matching {
			out = append(out, d.Name)
		}
		sort.Strings(out)
		return out, nil
	})
	register("replicaSetName", func(in [2]string) (string, error) {
		return generateReplicaSetName(in[0], in[1]), nil
	})
	register("deploymentStatus", func(in struct {
		rollout
		Counted bool      `json:"counted"`
		Now     time.Time `json:"now"`
	}) (apps.DeploymentStatus, error) {
		setGate(string(features.DeploymentReplicaSetTerminatingReplicas), in.Counted)
		status := calculateDeploymentStatus(in.all(), in.New, in.Deployment)
		stopClocks(&status, in.Now)
		return status, nil
	})
}
