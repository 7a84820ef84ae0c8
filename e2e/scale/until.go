package scale

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Until watches all objects of a list's kind and returns when done says so of n of them at
// once. When ctx ends the error tells how many there were and the state of one that
// was not done.
func (w *World) Until(ctx context.Context, list client.ObjectList, n int, done func(client.Object) bool) error {
	events, err := w.API.Watch(ctx, list)
	if err != nil {
		return fmt.Errorf("watch %T: %w", list, err)
	}
	defer events.Stop()
	met, missing := map[string]bool{}, map[string]client.Object{}
	for len(met) < n {
		select {
		case e, ok := <-events.ResultChan():
			if !ok {
				return w.Until(ctx, list, n, done) // the server ends watches now and then
			}
			obj, isObject := e.Object.(client.Object)
			if !isObject {
				return fmt.Errorf("watch %T answered %v", list, e.Object)
			}
			key := obj.GetNamespace() + "/" + obj.GetName()
			delete(met, key)
			delete(missing, key)
			switch {
			case e.Type == watch.Deleted:
			case done(obj):
				met[key] = true
			default:
				missing[key] = obj
			}
		case <-ctx.Done():
			for _, obj := range missing {
				return fmt.Errorf("%d of %d in %T: %w; one that is not: %+v", len(met), n, list, ctx.Err(), obj)
			}
			return fmt.Errorf("%d of %d in %T: %w", len(met), n, list, ctx.Err())
		}
	}
	return nil
}

// Gone returns when no object of the kind is left. It asks for one object at a time: a
// watch cannot tell that there was nothing to begin with.
func (w *World) Gone(ctx context.Context, list client.ObjectList) error {
	ask := time.NewTicker(200 * time.Millisecond)
	defer ask.Stop()
	for {
		if err := w.API.List(ctx, list, client.Limit(1)); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		left := list.GetRemainingItemCount()
		if meta.LenList(list) == 0 {
			return nil
		}
		select {
		case <-ask.C:
		case <-ctx.Done():
			more := int64(1)
			if left != nil {
				more += *left
			}
			return fmt.Errorf("%d left in %T: %w; one is %+v", more, list, ctx.Err(), list)
		}
	}
}
