package check_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// scaledObject is as much of keda.sh/v1alpha1 as the manifest uses (KEDA reference, ScaledObject).
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef  struct{ Name string } `json:"scaleTargetRef"`
		MinReplicaCount int                   `json:"minReplicaCount"`
		MaxReplicaCount int                   `json:"maxReplicaCount"`
		PollingInterval int                   `json:"pollingInterval"`
		CooldownPeriod  int                   `json:"cooldownPeriod"`
		Fallback        struct {
			FailureThreshold int `json:"failureThreshold"`
			Replicas         int `json:"replicas"`
		} `json:"fallback"`
		Advanced struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior map[string]any `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// manifests decodes every document strictly: an unknown or doubled field is an error, as kubectl's server-side
// validation would have it.
func manifests(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	files, err := filepath.Glob(filepath.Join(root, "deploy/k8s/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			key, object, err := decode(doc)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			out[key] = object
		}
	}
	return out
}

func decode(doc []byte) (string, any, error) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal(doc, &head); err != nil {
		return "", nil, err
	}
	kinds := map[string]any{
		"apps/v1 Deployment": &appsv1.Deployment{}, "batch/v1 Job": &batchv1.Job{}, "v1 Service": &corev1.Service{},
		"v1 ConfigMap": &corev1.ConfigMap{}, "v1 Namespace": &corev1.Namespace{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
		"networking.k8s.io/v1 NetworkPolicy": &networkingv1.NetworkPolicy{}, "keda.sh/v1alpha1 ScaledObject": &scaledObject{},
	}
	object, known := kinds[head.APIVersion+" "+head.Kind]
	if !known {
		return "", nil, os.ErrInvalid
	}
	return head.Kind + "/" + head.Metadata.Name, object, yaml.UnmarshalStrict(doc, object)
}

func TestTheManifestsAreWhatKubernetesKnows(t *testing.T) {
	t.Parallel()
	objects := manifests(t)
	for _, key := range []string{"Deployment/worker", "Deployment/terminal-gw", "PodDisruptionBudget/worker", "PodDisruptionBudget/terminal-gw",
		"Job/setup", "ConfigMap/wakebus", "ScaledObject/worker", "NetworkPolicy/wakebus", "Service/terminal-gw"} {
		if objects[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	if _, _, err := decode([]byte("apiVersion: v1\nkind: Service\nmetadata: { name: x }\nspec: { selectr: {} }\n")); err == nil {
		t.Error("a misspelt field is not noticed: the check checks nothing")
	}
}

func TestAPodIsKilledOnlyAfterItsDrain(t *testing.T) {
	t.Parallel()
	objects := manifests(t)
	for _, name := range []string{"worker", "terminal-gw"} {
		pod := objects["Deployment/"+name].(*appsv1.Deployment).Spec.Template.Spec
		var drain time.Duration
		for _, v := range pod.Containers[0].Env {
			if v.Name == "WAKEBUS_DRAIN_GRACE" {
				drain, _ = time.ParseDuration(v.Value)
			}
		}
		grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
		if drain == 0 || grace < drain+20*time.Second {
			t.Errorf("%s has %s for a drain of %s", name, grace, drain)
		}
	}
}

func TestEveryPodIsProbedAndRunsWithoutRights(t *testing.T) {
	t.Parallel()
	objects := manifests(t)
	for _, name := range []string{"worker", "terminal-gw"} {
		d := objects["Deployment/"+name].(*appsv1.Deployment)
		pod, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
		if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("%s is not probed as it should be", name)
		}
		if !*pod.SecurityContext.RunAsNonRoot || !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation {
			t.Errorf("%s may do too much", name)
		}
		budget := objects["PodDisruptionBudget/"+name].(*policyv1.PodDisruptionBudget)
		for k, v := range budget.Spec.Selector.MatchLabels {
			if d.Spec.Template.Labels[k] != v {
				t.Errorf("the budget of %s selects other pods", name)
			}
		}
	}
}

func TestTheScalerTargetsADeploymentAndCountsWhatRuns(t *testing.T) {
	t.Parallel()
	objects := manifests(t)
	scaler := objects["ScaledObject/worker"].(*scaledObject)
	target, ok := objects["Deployment/"+scaler.Spec.ScaleTargetRef.Name].(*appsv1.Deployment)
	if !ok || int(*target.Spec.Replicas) < scaler.Spec.MinReplicaCount {
		t.Errorf("the scaler's target %q", scaler.Spec.ScaleTargetRef.Name)
	}
	query := scaler.Spec.Triggers[0].Metadata["query"]
	for _, metric := range []string{"wakebus_bus_handling", "jetstream_consumer_num_pending"} {
		if !bytes.Contains([]byte(query), []byte(metric)) {
			t.Errorf("the query does not ask for %s", metric)
		}
	}
	if n, err := strconv.Atoi(scaler.Spec.Triggers[0].Metadata["threshold"]); err != nil || n < 1 {
		t.Errorf("threshold %d, %v", n, err)
	}
}
