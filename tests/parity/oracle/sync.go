package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/features"
)

// refusal makes the fake server refuse requests of a method to a path, after it has granted some of them.
type refusal struct {
	Method  string        `json:"method"`
	Path    string        `json:"path"`
	Granted int           `json:"granted"`
	Status  metav1.Status `json:"status"`
}

type world struct {
	Deployment *apps.Deployment `json:"deployment"`
	// Live is the Deployment as the server has it, if that is another state than the cache's.
	Live        *apps.Deployment   `json:"live"`
	ReplicaSets []*apps.ReplicaSet `json:"replicaSets"`
	Pods        []*v1.Pod          `json:"pods"`
	Refusals    []refusal          `json:"refusals"`
	Now         time.Time          `json:"now"`
	Counted     bool               `json:"counted"`
}

type write struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body"`
}

// outcome is all that a sync does: its requests, events and wake-ups, and whether it fails.
type outcome struct {
	Writes  []write  `json:"writes"`
	Events  []string `json:"events"`
	Wakeups []string `json:"wakeups"`
	Failed  bool     `json:"failed"`
}

// server is an API server that says yes, unless told otherwise, and keeps nothing.
type server struct {
	world  *world
	writes []write
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	s.writes = append(s.writes, write{r.Method, r.URL.Path, s.canonical(r, body)})
	for i := range s.world.Refusals {
		refused := &s.world.Refusals[i]
		if refused.Method == r.Method && refused.Path == r.URL.Path {
			if refused.Granted--; refused.Granted < 0 {
				return respondJSON(int(refused.Status.Code), refused.Status)
			}
		}
	}
	switch r.Method {
	case http.MethodGet:
		if s.world.Live != nil {
			return respondJSON(http.StatusOK, s.world.Live)
		}
		return respondJSON(http.StatusOK, s.world.Deployment)
	case http.MethodDelete:
		return respondJSON(http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
	case http.MethodPatch:
		return respondJSON(http.StatusOK, apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: path.Base(r.URL.Path)}})
	}
	return respondJSON(http.StatusOK, json.RawMessage(body))
}

// canonical is the body with the given time in new conditions.
func (s *server) canonical(r *http.Request, body []byte) json.RawMessage {
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/deployments/") {
		return body
	}
	var d apps.Deployment
	if err := json.Unmarshal(body, &d); err != nil {
		panic(err)
	}
	stopClocks(&d.Status, s.world.Now)
	canonical, err := json.Marshal(&d)
	if err != nil {
		panic(err)
	}
	return canonical
}

func respondJSON(code int, body any) (*http.Response, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(encoded))}, nil
}

// events records what the controller tells of objects.
type events struct {
	record.FakeRecorder
	told []string
}

func (e *events) Event(_ runtime.Object, kind, reason, message string) {
	e.told = append(e.told, fmt.Sprintf("%s %s %s", kind, reason, message))
}

func (e *events) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	e.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// queue records when the controller wants to be woken.
type queue struct {
	workqueue.TypedRateLimitingInterface[string]
	now     time.Time
	wakeups []string
}

func (q *queue) AddAfter(key string, delay time.Duration) {
	if real := time.Since(q.now); delay > real-time.Hour {
		// It counts from a condition that was set a moment ago, and that has the real time.
		delay = (delay - real).Round(time.Second)
	}
	q.wakeups = append(q.wakeups, fmt.Sprintf("%s after %d us", key, delay.Microseconds()))
}

func (q *queue) AddRateLimited(key string) {
	q.wakeups = append(q.wakeups, key+" rate limited")
}

var (
	apiServer = &server{}
	client    = kubernetes.NewForConfigOrDie(&rest.Config{
		Host:          "http://oracle",
		QPS:           -1,
		Transport:     apiServer,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	})
)

// newController makes a Deployment controller over caches with these objects.
func newController(in *world, told *events, woken *queue) *deployment.DeploymentController {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	deployments := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	replicaSets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	pods := cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.Pod{}, 0, indexers)
	if err := controller.AddPodControllerIndexer(pods); err != nil {
		panic(err)
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(deployments.Add(in.Deployment))
	for _, rs := range in.ReplicaSets {
		must(replicaSets.Add(rs))
	}
	for _, pod := range in.Pods {
		must(pods.GetIndexer().Add(pod))
	}
	dc := &deployment.DeploymentController{}
	for field, value := range map[string]any{
		"rsControl":     controller.RealRSControl{KubeClient: client, Recorder: told},
		"client":        client,
		"eventRecorder": told,
		"dLister":       appslisters.NewDeploymentLister(deployments),
		"rsLister":      appslisters.NewReplicaSetLister(replicaSets),
		"podIndexer":    pods.GetIndexer(),
		"queue":         woken,
	} {
		setField(dc, field, value)
	}
	return dc
}

// run lets a controller act on a world and tells all that it does.
func run(in *world, act func(*deployment.DeploymentController) error) outcome {
	setNow(in.Now)
	setGate(string(features.DeploymentReplicaSetTerminatingReplicas), in.Counted)
	*apiServer = server{world: in, writes: []write{}}
	told, woken := &events{told: []string{}}, &queue{now: in.Now, wakeups: []string{}}
	err := act(newController(in, told, woken))
	return outcome{apiServer.writes, told.told, woken.wakeups, err != nil}
}

func init() {
	ctx := context.Background()
	register("scale", func(in rollout) (outcome, error) {
		return run(&world{Deployment: in.Deployment}, func(dc *deployment.DeploymentController) error {
			return scale(dc, ctx, in.Deployment, in.New, in.Old)
		}), nil
	})
	register("cleanup", func(in rollout) (outcome, error) {
		return run(&world{Deployment: in.Deployment}, func(dc *deployment.DeploymentController) error {
			return cleanup(dc, ctx, in.Old, in.Deployment)
		}), nil
	})
	register("sync", func(in world) (outcome, error) {
		return run(&in, func(dc *deployment.DeploymentController) error {
			return syncDeployment(dc, ctx, in.Deployment.Namespace+"/"+in.Deployment.Name)
		}), nil
	})
}
