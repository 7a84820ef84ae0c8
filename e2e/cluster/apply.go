package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// fieldManager owns what Apply sets.
const fieldManager = "pillar-lab"

// serveWait is how long a resource of a new CRD may stay unknown after the CRD is
// established: the API server's discovery follows within a second.
const serveWait = 15 * time.Second

// ErrSkip of an Edit leaves the object out.
var ErrSkip = errors.New("not applied")

// Edit changes an object between the file and the API server.
type Edit func(*unstructured.Unstructured) error

// Apply makes objects as `kubectl apply --server-side` does. A path is a YAML file or a
// kustomize directory. CRDs and namespaces go first, and Apply waits until they are served.
func (c *ControlPlane) Apply(ctx context.Context, paths ...string) error {
	return c.ApplyEdited(ctx, nil, paths...)
}

// ApplyEdited is Apply with a change to each object; nil changes nothing.
func (c *ControlPlane) ApplyEdited(ctx context.Context, edit Edit, paths ...string) error {
	objects, err := load(edit, paths)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.apply(ctx, obj); err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

func (c *ControlPlane) apply(ctx context.Context, obj *unstructured.Unstructured) error {
	send := func() error {
		return c.Objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj.DeepCopy()),
			client.FieldOwner(fieldManager), client.ForceOwnership)
	}
	err := send()
	deadline := time.Now().Add(serveWait)
	for notServed(err) && time.Now().Before(deadline) {
		select {
		case <-time.After(50 * time.Millisecond): // nothing to watch: discovery has no watch
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
		err = send()
	}
	if err != nil || obj.GetKind() != "CustomResourceDefinition" {
		return err
	}
	return c.WaitCondition(ctx, obj.GroupVersionKind(), client.ObjectKeyFromObject(obj), "Established", metav1.ConditionTrue)
}

// notServed tells an answer about the kind, not the object: apply creates what is absent.
func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// Delete removes the objects of files and kustomize directories in reverse order and
// returns when all are gone, their finalizers included.
func (c *ControlPlane) Delete(ctx context.Context, paths ...string) error {
	objects, err := load(nil, paths)
	if err != nil {
		return err
	}
	slices.Reverse(objects)
	for _, obj := range objects {
		err := c.Objects.Delete(ctx, obj.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !notServed(err) {
			return fmt.Errorf("delete %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	for _, obj := range objects {
		err := c.Gone(ctx, obj)
		if err != nil && !notServed(err) {
			return err
		}
	}
	return nil
}

// load reads files and kustomize directories, the kinds others depend on first.
func load(edit Edit, paths []string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, path := range paths {
		data, err := render(path)
		if err != nil {
			return nil, err
		}
		objects, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		for _, obj := range objects {
			err := change(edit, obj)
			if errors.Is(err, ErrSkip) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("change %s %s: %w", obj.GetKind(), obj.GetName(), err)
			}
			out = append(out, obj)
		}
	}
	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return out, nil
}

func change(edit Edit, obj *unstructured.Unstructured) error {
	if edit == nil {
		return nil
	}
	return edit(obj)
}

func rank(obj *unstructured.Unstructured) int {
	switch obj.GetKind() {
	case "CustomResourceDefinition":
		return 0
	case "Namespace":
		return 1
	default:
		return 2
	}
}

// render answers the YAML of a file or of a kustomize directory.
func render(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return os.ReadFile(path)
	}
	options := krusty.MakeDefaultOptions()
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", path, err)
	}
	return resources.AsYaml()
}

// parse splits YAML documents into objects; empty documents are skipped.
func parse(data []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(obj.Object) > 0 {
			out = append(out, obj)
		}
	}
}
