//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// badClass fits its protocol, but not its store, and wants mkfs to leave the device.
func badClass() *unstructured.Unstructured {
	return classOf("bad", map[string]any{
		"storeRef": "vg0", "protocolRef": "nvme",
		"overrides":  map[string]any{"backend": map[string]any{"zfs": map[string]any{}}},
		"filesystem": map[string]any{"mkfsOptions": []any{"-E", "offset=4096"}},
	})
}

func classOf(name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "pillar-csi.bhyoo.com", Version: "v1alpha1", Kind: "PillarStorageClass"})
	o.SetName(name)
	return o
}

// fields are the places a refusal names.
func fields(err error) (paths []string) {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Details == nil {
		return nil
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		paths = append(paths, cause.Field)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// TestAdmission: the installed webhook refuses a bad class, all of it at once, and shows the
// default it fills in. Without the webhooks the rules of the CRDs hold; put back as they are
// shipped, with no caBundle, the webhooks work again by themselves.
func TestAdmission(t *testing.T) {
	ctx := begin(t)
	want := []string{"spec.filesystem.mkfsOptions", "spec.overrides.backend.zfs"}
	if diff := cmp.Diff(want, fields(try(ctx, badClass()))); diff != "" {
		t.Errorf("fields refused (-want +got):\n%s", diff)
	}
	good := classOf("pillar-lvm", nil)
	if err := world.Objects.Get(ctx, client.ObjectKeyFromObject(good), good); err != nil {
		t.Fatal(err)
	}
	if expands, _, _ := unstructured.NestedBool(good.Object, "spec", "storageClass", "allowVolumeExpansion"); !expands {
		t.Errorf("allowVolumeExpansion of the sample class was not filled in: %v", good.Object["spec"])
	}

	restore := withoutWebhooks(ctx, t)
	eventually(ctx, t, "a class only webhooks refuse is accepted", func() error { return try(ctx, badClass()) })
	move := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storeRef":"other","csiDriver":"files.pillar-csi.bhyoo.com"}}`))
	err := world.Objects.Patch(ctx, good, move, client.DryRunAll)
	if diff := cmp.Diff([]string{"spec.csiDriver", "spec.storeRef"}, fields(err)); diff != "" {
		t.Errorf("fields the CRD refuses (-want +got):\n%s", diff)
	}
	restore()
	eventually(ctx, t, "the bad class is refused again", func() error {
		if err := try(ctx, badClass()); !apierrors.IsInvalid(err) {
			return fmt.Errorf("answer %w, want Invalid", err)
		}
		return nil
	})
	eventually(ctx, t, "a good class is accepted again", func() error {
		return try(ctx, classOf("fine", map[string]any{"storeRef": "vg0", "protocolRef": "nvme"}))
	})
}

// try asks whether an object would be created.
func try(ctx context.Context, o client.Object) error {
	return world.Objects.Create(ctx, o, client.DryRunAll)
}

// withoutWebhooks deletes both configurations and answers how to put them back.
func withoutWebhooks(ctx context.Context, t *testing.T) (restore func()) {
	t.Helper()
	key := metav1.ObjectMeta{Name: "pillar-csi"}
	validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: key}
	mutating := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: key}
	for _, o := range []client.Object{validating, mutating} {
		if err := world.Objects.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []client.Object{validating, mutating} {
		if err := world.Objects.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
		o.SetResourceVersion("")
		o.SetUID("")
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = nil
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = nil
	}
	restored := false
	restore = func() {
		if restored {
			return
		}
		restored = true
		ctx := context.WithoutCancel(ctx)
		if err := errors.Join(world.Objects.Create(ctx, validating), world.Objects.Create(ctx, mutating)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	return restore
}

// eventually asks until it is so: API servers follow configurations by a watch, and the
// controller looks at them every ten seconds.
func eventually(ctx context.Context, t *testing.T, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}
