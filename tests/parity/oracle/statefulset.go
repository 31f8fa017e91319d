package main

import (
	"encoding/json"
	"sort"
	"time"
	_ "unsafe"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/features"
)

var _ = statefulset.ApplyRevision

//go:linkname parentNameAndOrdinal k8s.io/kubernetes/pkg/controller/statefulset.getParentNameAndOrdinal
func parentNameAndOrdinal(pod *v1.Pod) (string, int)

//go:linkname podInOrdinalRange k8s.io/kubernetes/pkg/controller/statefulset.podInOrdinalRange
func podInOrdinalRange(pod *v1.Pod, set *apps.StatefulSet) bool

//go:linkname isMemberOf k8s.io/kubernetes/pkg/controller/statefulset.isMemberOf
func isMemberOf(set *apps.StatefulSet, pod *v1.Pod) bool

//go:linkname identityMatches k8s.io/kubernetes/pkg/controller/statefulset.identityMatches
func identityMatches(set *apps.StatefulSet, pod *v1.Pod) bool

//go:linkname storageMatches k8s.io/kubernetes/pkg/controller/statefulset.storageMatches
func storageMatches(set *apps.StatefulSet, pod *v1.Pod) bool

//go:linkname isUnavailable k8s.io/kubernetes/pkg/controller/statefulset.isUnavailable
func isUnavailable(pod *v1.Pod, minReadySeconds int32, now time.Time) bool

//go:linkname updateIdentity k8s.io/kubernetes/pkg/controller/statefulset.updateIdentity
func updateIdentity(set *apps.StatefulSet, pod *v1.Pod)

//go:linkname updateStorage k8s.io/kubernetes/pkg/controller/statefulset.updateStorage
func updateStorage(set *apps.StatefulSet, pod *v1.Pod)

//go:linkname persistentVolumeClaims k8s.io/kubernetes/pkg/controller/statefulset.getPersistentVolumeClaims
func persistentVolumeClaims(set *apps.StatefulSet, pod *v1.Pod) map[string]v1.PersistentVolumeClaim

//go:linkname isClaimOwnerUpToDate k8s.io/kubernetes/pkg/controller/statefulset.isClaimOwnerUpToDate
func isClaimOwnerUpToDate(logger klog.Logger, claim *v1.PersistentVolumeClaim, set *apps.StatefulSet, pod *v1.Pod) bool

//go:linkname hasUnexpectedController k8s.io/kubernetes/pkg/controller/statefulset.hasUnexpectedController
func hasUnexpectedController(claim *v1.PersistentVolumeClaim, set *apps.StatefulSet, pod *v1.Pod) bool

//go:linkname updateClaimOwnerRef k8s.io/kubernetes/pkg/controller/statefulset.updateClaimOwnerRefForSetAndPod
func updateClaimOwnerRef(logger klog.Logger, claim *v1.PersistentVolumeClaim, set *apps.StatefulSet, pod *v1.Pod)

//go:linkname newVersionedStatefulSetPod k8s.io/kubernetes/pkg/controller/statefulset.newVersionedStatefulSetPod
func newVersionedStatefulSetPod(currentSet, updateSet *apps.StatefulSet, currentRevision, updateRevision string, ordinal int) *v1.Pod

//go:linkname newRevision k8s.io/kubernetes/pkg/controller/statefulset.newRevision
func newRevision(set *apps.StatefulSet, revision int64, collisionCount *int32) (*apps.ControllerRevision, error)

//go:linkname nextRevision k8s.io/kubernetes/pkg/controller/statefulset.nextRevision
func nextRevision(revisions []*apps.ControllerRevision) int64

//go:linkname updateStatefulSetCounts k8s.io/kubernetes/pkg/controller/statefulset.updateStatus
func updateStatefulSetCounts(status *apps.StatefulSetStatus, minReadySeconds int32, current, update *apps.ControllerRevision, now time.Time, pods ...[]*v1.Pod)

//go:linkname completeUpdate k8s.io/kubernetes/pkg/controller/statefulset.completeUpdate
func completeUpdate(set *apps.StatefulSet, status *apps.StatefulSetStatus)

//go:linkname inconsistentStatus k8s.io/kubernetes/pkg/controller/statefulset.inconsistentStatus
func inconsistentStatus(set *apps.StatefulSet, status *apps.StatefulSetStatus) bool

//go:linkname statefulSetMaxUnavailable k8s.io/kubernetes/pkg/controller/statefulset.getStatefulSetMaxUnavailable
func statefulSetMaxUnavailable(maxUnavailable *intstr.IntOrString, replicas int) (int, error)

type place struct {
	Parent      string  `json:"parent"`
	Ordinal     int     `json:"ordinal"`
	Member      bool    `json:"member"`
	InRange     bool    `json:"inRange"`
	Identity    bool    `json:"identity"`
	Storage     bool    `json:"storage"`
	Unavailable bool    `json:"unavailable"`
	Repaired    *v1.Pod `json:"repaired,omitempty"`
}

type claimOwners struct {
	UpToDate   bool                    `json:"upToDate"`
	Unexpected bool                    `json:"unexpected"`
	Updated    []metav1.OwnerReference `json:"updated"`
}

type statefulSetVerdict struct {
	Status       apps.StatefulSetStatus `json:"status"`
	Inconsistent bool                   `json:"inconsistent"`
}

type namedRevision struct {
	Name     string            `json:"name"`
	Labels   map[string]string `json:"labels"`
	Data     json.RawMessage   `json:"data"`
	Revision int64             `json:"revision"`
}

type revisionOrder struct {
	Names []string `json:"names"`
	Next  int64    `json:"next"`
	Equal []string `json:"equal"`
}

func named(name string) *apps.ControllerRevision {
	return &apps.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func init() {
	register("statefulSetPlace", func(in struct {
		Set *apps.StatefulSet `json:"set"`
		Pod *v1.Pod           `json:"pod"`
		Now time.Time         `json:"now"`
	}) (place, error) {
		out := place{
			Member:      isMemberOf(in.Set, in.Pod),
			InRange:     podInOrdinalRange(in.Pod, in.Set),
			Identity:    identityMatches(in.Set, in.Pod),
			Storage:     storageMatches(in.Set, in.Pod),
			Unavailable: isUnavailable(in.Pod, in.Set.Spec.MinReadySeconds, in.Now),
		}
		out.Parent, out.Ordinal = parentNameAndOrdinal(in.Pod)
		if out.Ordinal >= 0 {
			// As UpdateStatefulPod does.
			out.Repaired = in.Pod.DeepCopy()
			if !out.Identity {
				updateIdentity(in.Set, out.Repaired)
			}
			if !storageMatches(in.Set, out.Repaired) {
				updateStorage(in.Set, out.Repaired)
			}
		}
		return out, nil
	})
	register("statefulSetClaims", func(in struct {
		Set *apps.StatefulSet `json:"set"`
		Pod *v1.Pod           `json:"pod"`
	}) (map[string]v1.PersistentVolumeClaim, error) {
		return persistentVolumeClaims(in.Set, in.Pod), nil
	})
	register("claimOwners", func(in struct {
		Set   *apps.StatefulSet         `json:"set"`
		Pod   *v1.Pod                   `json:"pod"`
		Claim *v1.PersistentVolumeClaim `json:"claim"`
	}) (claimOwners, error) {
		logger := klog.Background()
		out := claimOwners{
			UpToDate:   isClaimOwnerUpToDate(logger, in.Claim, in.Set, in.Pod),
			Unexpected: hasUnexpectedController(in.Claim, in.Set, in.Pod),
		}
		updateClaimOwnerRef(logger, in.Claim, in.Set, in.Pod)
		out.Updated = in.Claim.OwnerReferences
		return out, nil
	})
	register("statefulSetPod", func(in struct {
		Set     *apps.StatefulSet  `json:"set"`
		Update  v1.PodTemplateSpec `json:"update"`
		Ordinal int                `json:"ordinal"`
	}) (*v1.Pod, error) {
		update := in.Set.DeepCopy()
		update.Spec.Template = in.Update
		return newVersionedStatefulSetPod(in.Set, update, "current", "update", in.Ordinal), nil
	})
	register("newStatefulSetRevision", func(in struct {
		Set            *apps.StatefulSet `json:"set"`
		CollisionCount int32             `json:"collisionCount"`
	}) (namedRevision, error) {
		revision, err := newRevision(in.Set, 1, &in.CollisionCount)
		if err != nil {
			return namedRevision{}, err
		}
		return namedRevision{Name: revision.Name, Labels: revision.Labels, Data: revision.Data.Raw, Revision: revision.Revision}, nil
	})
	register("revisionOrder", func(in struct {
		Revisions []*apps.ControllerRevision `json:"revisions"`
		Needle    *apps.ControllerRevision   `json:"needle"`
	}) (revisionOrder, error) {
		history.SortControllerRevisions(in.Revisions)
		out := revisionOrder{Names: []string{}, Next: nextRevision(in.Revisions), Equal: []string{}}
		for _, revision := range in.Revisions {
			out.Names = append(out.Names, revision.Name)
		}
		for _, equal := range history.FindEqualRevisions(in.Revisions, in.Needle) {
			out.Equal = append(out.Equal, equal.Name)
		}
		sort.Strings(out.Equal)
		return out, nil
	})
	register("statefulSetStatus", func(in struct {
		Set      *apps.StatefulSet `json:"set"`
		Pods     []*v1.Pod         `json:"pods"`
		Now      time.Time         `json:"now"`
		Recreate bool              `json:"recreate"`
	}) (statefulSetVerdict, error) {
		setGate(string(features.StatefulSetRecreateStrategy), in.Recreate)
		status := *in.Set.Status.DeepCopy()
		status.ObservedGeneration = in.Set.Generation
		current, update := named(status.CurrentRevision), named(status.UpdateRevision)
		updateStatefulSetCounts(&status, in.Set.Spec.MinReadySeconds, current, update, in.Now, in.Pods)
		completeUpdate(in.Set, &status)
		for i := range status.Conditions {
			stopClock(&status.Conditions[i].LastTransitionTime, in.Now)
		}
		return statefulSetVerdict{Status: status, Inconsistent: inconsistentStatus(in.Set, &status)}, nil
	})
	register("statefulSetMaxUnavailable", func(in struct {
		Value    *intstr.IntOrString `json:"value"`
		Replicas int                 `json:"replicas"`
	}) (int, error) {
		return statefulSetMaxUnavailable(in.Value, in.Replicas)
	})
}
