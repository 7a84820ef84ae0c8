package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// waitEvent watches the events about one object by name.
func waitEvent(ctx context.Context, c kubernetes.Interface, namespace, name string, match func(*corev1.Event) bool) (*corev1.Event, error) {
	events := c.CoreV1().Events(namespace)
	about := fields.OneTermEqualSelector("involvedObject.name", name).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = about
			return events.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = about
			return events.Watch(ctx, o)
		},
	}
	var found *corev1.Event
	last := "no event at all"
	_, err := watchtools.UntilWithSync(ctx, lw, &corev1.Event{}, nil, func(event watch.Event) (bool, error) {
		e, ok := event.Object.(*corev1.Event)
		if !ok {
			return false, fmt.Errorf("watch answered %T", event.Object)
		}
		last = "last event " + e.Reason + ": " + e.Message
		if match(e) {
			found = e
		}
		return found != nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for an event about %s/%s: %w; %s", namespace, name, err, last)
	}
	return found, nil
}
