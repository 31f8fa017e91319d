package main

import (
	"context"
	"reflect"
	"time"
	"unsafe"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

// The functions that the packages keep to themselves are called by their linker names, so that what is compared with is the
// reference itself and not a copy of it.

//go:linkname calculateDeploymentStatus k8s.io/kubernetes/pkg/controller/deployment.calculateStatus
func calculateDeploymentStatus(all []*apps.ReplicaSet, newRS *apps.ReplicaSet, d *apps.Deployment) apps.DeploymentStatus

//go:linkname generateReplicaSetName k8s.io/kubernetes/pkg/controller/deployment.generateReplicaSetName
func generateReplicaSetName(deployment, hash string) string

//go:linkname scale k8s.io/kubernetes/pkg/controller/deployment.(*DeploymentController).scale
func scale(dc *deployment.DeploymentController, ctx context.Context, d *apps.Deployment, newRS *apps.ReplicaSet, old []*apps.ReplicaSet) error

//go:linkname cleanup k8s.io/kubernetes/pkg/controller/deployment.(*DeploymentController).cleanupDeployment
func cleanup(dc *deployment.DeploymentController, ctx context.Context, old []*apps.ReplicaSet, d *apps.Deployment) error

//go:linkname syncDeployment k8s.io/kubernetes/pkg/controller/deployment.(*DeploymentController).syncDeployment
func syncDeployment(dc *deployment.DeploymentController, ctx context.Context, key string) error

//go:linkname calculateReplicaSetStatus k8s.io/kubernetes/pkg/controller/replicaset.calculateStatus
func calculateReplicaSetStatus(rs *apps.ReplicaSet, active, terminating []*v1.Pod, failure error, features replicaset.ReplicaSetControllerFeatures, now time.Time) apps.ReplicaSetStatus

//go:linkname rankPods k8s.io/kubernetes/pkg/controller/replicaset.getPodsRankedByRelatedPodsOnSameNode
func rankPods(pods, related []*v1.Pod) controller.ActivePodsWithRanks

//go:linkname slowStartBatch k8s.io/kubernetes/pkg/controller/replicaset.slowStartBatch
func slowStartBatch(count, initial int, fn func() error) (int, error)

//go:linkname syncNow k8s.io/kubernetes/pkg/controller/deployment.nowFn
var syncNow func() time.Time

//go:linkname utilNow k8s.io/kubernetes/pkg/controller/deployment/util.nowFn
var utilNow func() time.Time

// setNow stops the clock that deadlines are measured by.
func setNow(now time.Time) {
	syncNow = func() time.Time { return now }
	utilNow = syncNow
}

// setField fills a field of a struct that only its package can name.
func setField(target any, name string, value any) {
	field := reflect.ValueOf(target).Elem().FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}
