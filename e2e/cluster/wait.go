package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Until watches one object, by obj's type, namespace and name, and returns when done says
// so. obj holds the newest state each time done is asked; done is not asked while the
// object does not exist. An error of done ends the wait. When ctx ends the error tells
// what the object last looked like.
func (c *ControlPlane) Until(ctx context.Context, obj client.Object, done func() (bool, error)) error {
	seen := false
	err := c.watch(ctx, obj, func(event watch.Event) (bool, error) {
		if event.Type == watch.Deleted {
			seen = false
			return false, nil
		}
		seen = true
		if err := decode(event.Object, obj); err != nil {
			return false, err
		}
		return done()
	}, nil)
	if err == nil {
		return nil
	}
	last := "it does not exist"
	if seen {
		last = "last seen " + brief(obj)
	}
	return fmt.Errorf("wait for %s: %w; %s", c.describe(obj), err, last)
}

// Gone returns when the object does not exist.
func (c *ControlPlane) Gone(ctx context.Context, obj client.Object) error {
	err := c.watch(ctx, obj, func(event watch.Event) (bool, error) {
		if event.Type == watch.Deleted {
			return true, nil
		}
		return false, decode(event.Object, obj)
	}, func(store cache.Store) (bool, error) {
		return len(store.List()) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the end of %s: %w; last seen %s", c.describe(obj), err, brief(obj))
	}
	return nil
}

// watch runs an informer for one object. first is asked once, after the first list.
func (c *ControlPlane) watch(ctx context.Context, obj client.Object, event watchtools.ConditionFunc, first watchtools.PreconditionFunc) error {
	resource, err := c.resource(obj)
	if err != nil {
		return err
	}
	only := fields.OneTermEqualSelector("metadata.name", obj.GetName()).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return resource.Watch(ctx, o)
		},
	}
	_, err = watchtools.UntilWithSync(ctx, lw, &unstructured.Unstructured{}, first, event)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// resource answers the API endpoint of an object's kind.
func (c *ControlPlane) resource(obj client.Object) (dynamic.ResourceInterface, error) {
	gvk, err := apiutil.GVKForObject(obj, c.Objects.Scheme())
	if err != nil {
		return nil, err
	}
	mapping, err := c.Objects.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	resource := c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return resource.Namespace(obj.GetNamespace()), nil
	}
	return resource, nil
}

func decode(from runtime.Object, to client.Object) error {
	u, ok := from.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("watch answered %T", from)
	}
	if out, ok := to.(*unstructured.Unstructured); ok {
		out.Object = u.DeepCopy().Object
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, to)
}

func (c *ControlPlane) describe(obj client.Object) string {
	kind := fmt.Sprintf("%T", obj)
	if gvk, err := apiutil.GVKForObject(obj, c.Objects.Scheme()); err == nil {
		kind = gvk.Kind
	}
	if obj.GetNamespace() == "" {
		return kind + " " + obj.GetName()
	}
	return kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}

// brief answers an object's status as JSON for an error message.
func brief(obj client.Object) string {
	const most = 1500
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err.Error()
	}
	data, err := json.Marshal(fields["status"])
	if err != nil {
		return err.Error()
	}
	if len(data) > most {
		data = append(data[:most], "..."...)
	}
	return string(data)
}

// ErrEnded is a wait for something that can no longer happen, like a pod that failed.
var ErrEnded = errors.New("it can no longer happen")
