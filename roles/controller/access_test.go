package controller

import (
	"fmt"
	"testing"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// TestAdmitPublication holds every combination of one record and one request against the
// matrix of block.md B-91 to B-96, written down a second time from the rules' text.
func TestAdmitPublication(t *testing.T) {
	const many = "MULTI_NODE_READER_ONLY"
	all := []string{"SINGLE_NODE_WRITER", "SINGLE_NODE_READER_ONLY", "SINGLE_NODE_SINGLE_WRITER", "SINGLE_NODE_MULTI_WRITER", many}
	flags := []bool{false, true}
	rule := func(r, w v1alpha1.PublishedNode) (csiserve.Code, bool) {
		switch {
		case r.NodeID == w.NodeID && r.Revoking:
			return csiserve.Aborted, false // B-92
		case r.NodeID == w.NodeID && r.AccessMode == w.AccessMode && r.Readonly == w.Readonly:
			return 0, true // B-91
		case r.NodeID == w.NodeID:
			return csiserve.AlreadyExists, false // B-93
		case r.AccessMode == many && w.AccessMode == many:
			return 0, false // B-95
		}
		return csiserve.FailedPrecondition, false // B-94, B-96
	}
	for _, node := range []string{"a", "b"} {
		for _, had := range all {
			for _, wants := range all {
				for i := range 8 {
					r := v1alpha1.PublishedNode{NodeID: "a", AccessMode: had, Readonly: flags[i&1], Revoking: flags[i>>1&1]}
					w := v1alpha1.PublishedNode{NodeID: node, AccessMode: wants, Readonly: flags[i>>2]}
					code, exists := rule(r, w)
					gotExists, err := admitPublication([]v1alpha1.PublishedNode{r}, w)
					if csiserve.CodeOf(err) != code || gotExists != exists {
						t.Errorf("admitPublication(%+v, %+v) = %t, %v, want %t, %v", r, w, gotExists, err, exists, code)
					}
				}
			}
		}
	}
}

// TestAdmitPublication_records checks that every record counts, wherever it stands.
func TestAdmitPublication_records(t *testing.T) {
	const many = "MULTI_NODE_READER_ONLY"
	a := v1alpha1.PublishedNode{NodeID: "a", AccessMode: many}
	b := v1alpha1.PublishedNode{NodeID: "b", AccessMode: "SINGLE_NODE_WRITER", Revoking: true}
	for _, records := range [][]v1alpha1.PublishedNode{{a, b}, {b, a}} {
		t.Run(fmt.Sprint(records), func(t *testing.T) {
			if _, err := admitPublication(records, a); csiserve.CodeOf(err) != csiserve.FailedPrecondition {
				t.Errorf("admitPublication = %v, want FailedPrecondition", err)
			}
		})
	}
}
