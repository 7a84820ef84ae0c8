package reconcile

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestInitiators: two nodes with one host NQN or IQN are each warned about, and a third is
// not (block.md B-43, U-3).
func TestInitiators(t *testing.T) {
	for _, id := range identities {
		t.Run(id.name, func(t *testing.T) {
			b := newBench(t)
			value := "same-" + b.name
			names := []string{b.name + "x", b.name + "y", b.name + "z"}
			for i, name := range names {
				b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
				own := value
				if i == 2 {
					own = "other-" + b.name
				}
				b.create(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{id.key: own}}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}})
			}
			r := &initiators{b.kube}
			node := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: names[0]}}
			if got := fmt.Sprint(r.alike(t.Context(), node)); got != fmt.Sprint(names[:2]) {
				t.Errorf("a change of %s concerns %s, want both", names[0], got)
			}
			for i, want := range []string{names[1], names[0], ""} {
				req := b.request()
				req.Name = names[i]
				if _, err := r.Reconcile(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				got := strings.Join(b.heard(), "\n")
				if (got == "") != (want == "") || want != "" && !(strings.HasPrefix(got, "Warning DuplicateInitiator") && strings.Contains(got, want) && strings.Contains(got, id.fix)) {
					t.Errorf("%s is told %q, want %s named", names[i], got, want)
				}
			}
			bare := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, {ObjectMeta: metav1.ObjectMeta{Name: "y"}}}
			if v := duplicates("x", bare); v != nil {
				t.Errorf("two nodes without an identity are duplicates: %v", v)
			}
		})
	}
}
