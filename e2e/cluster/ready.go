package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WaitNode returns when the node's Ready condition has the given value, as True or Unknown.
func (c *ControlPlane) WaitNode(ctx context.Context, name string, ready corev1.ConditionStatus) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return c.Until(ctx, node, func() (bool, error) { return nodeReady(node) == ready, nil })
}

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status
		}
	}
	return corev1.ConditionUnknown
}

// WaitPod returns the pod once it is ready. A pod that ended is ErrEnded.
func (c *ControlPlane) WaitPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := c.Until(ctx, pod, func() (bool, error) {
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			return false, fmt.Errorf("pod is %s: %w", pod.Status.Phase, ErrEnded)
		}
		return podReady(pod), nil
	})
	return pod, err
}

func podReady(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// WaitDeployment returns when every replica of the newest revision is ready.
func (c *ControlPlane) WaitDeployment(ctx context.Context, namespace, name string) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return c.Until(ctx, d, func() (bool, error) {
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		return d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == want &&
			d.Status.UpdatedReplicas == want && d.Status.ReadyReplicas == want, nil
	})
}

// WaitDaemonSet returns when want pods of the newest revision are ready, and no others are
// wanted.
func (c *ControlPlane) WaitDaemonSet(ctx context.Context, namespace, name string, want int) error {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return c.Until(ctx, d, func() (bool, error) {
		s := d.Status
		return s.ObservedGeneration >= d.Generation && s.DesiredNumberScheduled == int32(want) &&
			s.UpdatedNumberScheduled == int32(want) && s.NumberReady == int32(want), nil
	})
}

// WaitClaim returns the claim once it is bound.
func (c *ControlPlane) WaitClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := c.Until(ctx, claim, func() (bool, error) { return claim.Status.Phase == corev1.ClaimBound, nil })
	return claim, err
}

// WaitCondition returns when status.conditions of any object has the given type and
// status, seen for the newest generation where the condition names one.
func (c *ControlPlane) WaitCondition(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey, condition string, status metav1.ConditionStatus) error {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	return c.Until(ctx, obj, func() (bool, error) {
		list, _, err := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
		if err != nil {
			return false, err
		}
		items, _ := list.([]any) // a new CRD's are null
		for _, item := range items {
			cond, ok := item.(map[string]any)
			if !ok || cond["type"] != condition {
				continue
			}
			observed, named := cond["observedGeneration"].(int64)
			return cond["status"] == string(status) && (!named || observed >= obj.GetGeneration()), nil
		}
		return false, nil
	})
}

// WaitEvent returns the first event about an object whose message match accepts, past ones
// included.
func (c *ControlPlane) WaitEvent(ctx context.Context, namespace, name string, match func(*corev1.Event) bool) (*corev1.Event, error) {
	return waitEvent(ctx, c.Client, namespace, name, match)
}
