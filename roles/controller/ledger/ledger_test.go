package ledger

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
)

// open answers a ledger on an in-memory API whose status writes go through write.
func open(t *testing.T, write func(ctx context.Context, c client.Client, obj client.Object) error) (*Ledger, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.PillarVolumeState{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, obj client.Object, _ ...client.SubResourceUpdateOption) error {
				return write(ctx, c, obj)
			},
		}).Build()
	return New(api), api
}

func plain(ctx context.Context, c client.Client, obj client.Object) error {
	return c.Status().Update(ctx, obj)
}

func record(name string) *v1alpha1.PillarVolumeState {
	return &v1alpha1.PillarVolumeState{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u1"}}
}

func advance(v *v1alpha1.PillarVolumeState) (bool, error) { Advance(v); return true, nil }

var conflict = apierrors.NewConflict(schema.GroupResource{Resource: "pillarvolumestates"}, "v", errors.New("changed"))

func TestLedger_Update(t *testing.T) {
	tests := map[string]struct {
		conflicts int
		want      error
		writes    int
		gen       int64
	}{
		"first write":             {0, nil, 1, 1},
		"two lost, third decides": {2, nil, 3, 1},
		"every write lost":        {99, ErrLost, 5, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writes := 0
			l, _ := open(t, func(ctx context.Context, c client.Client, obj client.Object) error {
				if writes++; writes <= test.conflicts {
					return conflict
				}
				return plain(ctx, c, obj)
			})
			v, err := l.Create(t.Context(), record("v"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.Update(t.Context(), v, advance)
			if !errors.Is(err, test.want) || writes != test.writes {
				t.Errorf("Update = %v after %d writes, want %v after %d", err, writes, test.want, test.writes)
			}
			now, err := l.Read(t.Context(), "v")
			if err != nil || now.Status.PublicationGeneration != test.gen {
				t.Errorf("generation = %d (%v), want %d", now.Status.PublicationGeneration, err, test.gen)
			}
		})
	}
}

func TestLedger_Update_refusesAnotherLifecycle(t *testing.T) {
	l, api := open(t, plain)
	old, err := l.Create(t.Context(), record("v"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Update(t.Context(), old, advance); !errors.Is(err, ErrLost) {
		t.Errorf("Update of a vanished record = %v, want ErrLost", err)
	}
	next := record("v")
	next.UID = "u2"
	if err := api.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Update(t.Context(), old, advance); !errors.Is(err, ErrLost) {
		t.Errorf("Update under another UID = %v, want ErrLost", err)
	}
	if err := l.Remove(t.Context(), old); err != nil {
		t.Errorf("Remove of a dead lifecycle = %v, want nil", err)
	}
	now, err := l.Read(t.Context(), "v")
	if err != nil || now.UID != "u2" || now.Status.PublicationGeneration != 0 {
		t.Errorf("the new lifecycle = %v, %v, want it untouched", now, err)
	}
}

func TestLedger_Create_conflict(t *testing.T) {
	l, _ := open(t, plain)
	if _, err := l.Create(t.Context(), record("v")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Create(t.Context(), record("v")); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("second Create = %v, want ErrConflict", err)
	}
	if _, err := l.Read(t.Context(), "w"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Read of none = %v, want ErrNotFound", err)
	}
}

func TestPhase(t *testing.T) {
	tests := map[string]struct {
		phase    v1alpha1.Phase
		recovery bool
		want     v1alpha1.Phase
	}{
		"nothing yet":      {"", false, v1alpha1.PhaseProvisioning},
		"recovery, empty":  {"", true, v1alpha1.PhaseRecoveryPending},
		"recovery, done":   {v1alpha1.PhaseReady, true, v1alpha1.PhaseReady},
		"partial":          {v1alpha1.PhaseCreatePartial, false, v1alpha1.PhaseCreatePartial},
		"published":        {v1alpha1.PhaseControllerPublished, false, v1alpha1.PhaseReady},
		"partly staged":    {v1alpha1.PhaseNodeStagePartial, false, v1alpha1.PhaseReady},
		"staged":           {v1alpha1.PhaseNodeStaged, false, v1alpha1.PhaseReady},
		"published to pod": {v1alpha1.PhaseNodePublished, false, v1alpha1.PhaseReady},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := record("v")
			v.Status.Phase = test.phase
			if test.recovery {
				v.Spec.Recovery = &v1alpha1.Recovery{}
			}
			if got := Phase(v); got != test.want {
				t.Errorf("Phase = %s, want %s", got, test.want)
			}
		})
	}
}

func TestDesired(t *testing.T) {
	v := record("v")
	if _, ok := Desired(v); ok {
		t.Error("Desired guessed an export without exportSpec")
	}
	v.Status = v1alpha1.PillarVolumeStateStatus{
		Phase: v1alpha1.PhaseReady, PublicationGeneration: 7, LocalAttachNode: "s",
		ExportSpec: &v1alpha1.ExportSpec{BindAddress: "10.0.0.1", Port: 4420, ACLEnabled: true},
		PublishedNodes: []v1alpha1.PublishedNode{
			{NodeID: "a", InitiatorID: "nqn.a"}, {NodeID: "b", InitiatorID: "nqn.b", Revoking: true}, {NodeID: "s", InitiatorID: "s", Local: true},
		},
	}
	item, ok := Desired(v)
	if !ok || item.Token.Generation != 7 || !item.Ready || !item.Export.Disabled || len(item.Export.Initiators) != 1 || item.Export.Initiators[0] != "nqn.a" {
		t.Errorf("Desired = %+v, want token 7, disabled, only nqn.a", item)
	}
}

func TestLedger_ByID(t *testing.T) {
	l, api := open(t, plain)
	made := func(name, id string) *v1alpha1.PillarVolumeState {
		v := record(name)
		v.Spec.VolumeID = id
		v, err := l.Create(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	made("pvc-1", "a/nvmeof-tcp/lvm-lv/vg0/one")
	made("pvc-2", "a/nvmeof-tcp/lvm-lv/vg0/two")
	bare := made("pvc-3", "a/nvmeof-tcp/lvm-lv/vg0/three")
	bare.Labels = nil
	if err := api.Update(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"a/nvmeof-tcp/lvm-lv/vg0/one":   "pvc-1",
		"a/nvmeof-tcp/lvm-lv/vg0/three": "pvc-3", // somebody removed its label
		"a/nvmeof-tcp/lvm-lv/vg0/none":  "",
	} {
		v, err := l.ByID(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if v != nil {
			got = v.Name
		}
		if got != want {
			t.Errorf("ByID(%s) = %q, want %q", id, got, want)
		}
	}
}
