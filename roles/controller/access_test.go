package controller

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// capability is one of a mode, for pods that see a filesystem or a block device.
func capability(block bool, mode accessMode) *csi.VolumeCapability {
	c := mount(mode)
	if block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return c
}

// TestSupports is the table of api.md 9.2 for the default identity, all of it: every mode
// CSI knows, both access types, every protocol.
func TestSupports(t *testing.T) {
	type row struct{ blockMount, blockRaw, nfsMount, nfsRaw bool }
	table := map[string]row{
		"UNKNOWN":                   {},
		"SINGLE_NODE_WRITER":        {true, true, true, false},
		"SINGLE_NODE_READER_ONLY":   {true, true, true, false},
		"SINGLE_NODE_SINGLE_WRITER": {true, true, true, false},
		"SINGLE_NODE_MULTI_WRITER":  {true, true, true, false},
		"MULTI_NODE_READER_ONLY":    {true, true, true, false},
		"MULTI_NODE_SINGLE_WRITER":  {},
		"MULTI_NODE_MULTI_WRITER":   {nfsMount: true},
	}
	for number, name := range csi.VolumeCapability_AccessMode_Mode_name {
		want, ok := table[name]
		if !ok {
			t.Errorf("mode %s has no row", name)
		}
		for kind, cells := range map[transport.Kind][2]bool{
			transport.NVMeTCP: {want.blockMount, want.blockRaw},
			transport.ISCSI:   {want.blockMount, want.blockRaw},
			transport.NFS:     {want.nfsMount, want.nfsRaw},
			"":                {},
		} {
			for i, block := range []bool{false, true} {
				mode := accessMode(number)
				if got := supports(kind, block, mode); got != cells[i] {
					t.Errorf("supports(%s, block %t, %s) = %t, want %t", kind, block, name, got, cells[i])
				}
				if err := fit(kind, capability(block, mode)); (err == nil) != cells[i] {
					t.Errorf("fit(%s, block %t, %s) = %v, want nil %t", kind, block, name, err, cells[i])
				}
			}
		}
	}
}

func TestFit(t *testing.T) {
	const (
		many    = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		oneRead = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	)
	tests := map[string]struct {
		kind transport.Kind
		caps []*csi.VolumeCapability
		ok   bool
	}{
		"one unsupported entry refuses all":      {transport.NVMeTCP, []*csi.VolumeCapability{mount(writer), mount(many)}, false},
		"block: readers beside a writer":         {transport.NVMeTCP, []*csi.VolumeCapability{mount(reader), mount(writer)}, true},
		"block: raw beside mount":                {transport.ISCSI, []*csi.VolumeCapability{mount(writer), capability(true, writer)}, true},
		"NFS: readers beside one writer":         {transport.NFS, []*csi.VolumeCapability{mount(reader), mount(writer)}, false},
		"NFS: readers beside many writers":       {transport.NFS, []*csi.VolumeCapability{mount(many), mount(reader)}, false},
		"NFS: readers beside one reader":         {transport.NFS, []*csi.VolumeCapability{mount(reader), mount(oneRead)}, true},
		"NFS: a writer beside one reader":        {transport.NFS, []*csi.VolumeCapability{mount(writer), mount(oneRead)}, true},
		"no access type":                         {transport.NVMeTCP, []*csi.VolumeCapability{{AccessMode: mount(writer).AccessMode}}, false},
		"no access mode":                         {transport.NVMeTCP, []*csi.VolumeCapability{{AccessType: mount(writer).AccessType}}, false},
		"a protocol nobody knows (a bad record)": {"smb", []*csi.VolumeCapability{mount(writer)}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := fit(test.kind, test.caps...); (err == nil) != test.ok {
				t.Errorf("fit(%s, %v) = %v, want nil %t", test.kind, test.caps, err, test.ok)
			}
		})
	}
}

// allModes are the modes a volume can be published in.
var allModes = []string{
	"SINGLE_NODE_WRITER", "SINGLE_NODE_READER_ONLY", "SINGLE_NODE_SINGLE_WRITER", "SINGLE_NODE_MULTI_WRITER",
	"MULTI_NODE_READER_ONLY", "MULTI_NODE_MULTI_WRITER",
}

// publications are all records and requests of a node.
func publications(node string) (all []v1alpha1.PublishedNode) {
	for _, mode := range allModes {
		for i := range 4 {
			all = append(all, v1alpha1.PublishedNode{NodeID: node, AccessMode: mode, Readonly: i&1 == 1, Revoking: i&2 == 2})
		}
	}
	return all
}

// ruled is api.md 9.3 and block.md B-91 to B-96, written down a second time from the
// rules' text.
func ruled(records []v1alpha1.PublishedNode, w v1alpha1.PublishedNode) (code csiserve.Code, exists bool) {
	for _, r := range records {
		switch {
		case r.NodeID != w.NodeID:
		case r.Revoking:
			return csiserve.Aborted, false // B-92
		case r.AccessMode != w.AccessMode || r.Readonly != w.Readonly:
			return csiserve.AlreadyExists, false // B-93
		default:
			exists = true // B-91
		}
	}
	shared := []string{"MULTI_NODE_READER_ONLY", "MULTI_NODE_MULTI_WRITER"} // B-95, and RWX of NFS
	for _, r := range records {
		if r.NodeID != w.NodeID && !(r.AccessMode == w.AccessMode && slices.Contains(shared, r.AccessMode)) {
			return csiserve.FailedPrecondition, false // B-94, B-96
		}
	}
	return 0, exists
}

// TestAdmitPublication is exhaustive: no, one or two records in any mode, read-only or not,
// revoking or not, in both orders, against every request by a node that has the first, the
// second or none of them.
func TestAdmitPublication(t *testing.T) {
	first, second := publications("a"), publications("b")
	sets := [][]v1alpha1.PublishedNode{nil}
	for _, a := range first {
		sets = append(sets, []v1alpha1.PublishedNode{a})
		for _, b := range second {
			sets = append(sets, []v1alpha1.PublishedNode{a, b}, []v1alpha1.PublishedNode{b, a})
		}
	}
	for _, node := range []string{"a", "b", "c"} {
		for _, want := range publications(node) {
			if want.Revoking {
				continue // no request says so
			}
			for _, records := range sets {
				code, exists := ruled(records, want)
				gotExists, err := admitPublication(records, want)
				if csiserve.CodeOf(err) != code || gotExists != exists {
					t.Fatalf("admitPublication(%+v, %+v) = %t, %v, want %t, %v", records, want, gotExists, err, exists, code)
				}
			}
		}
	}
}
