package node

import (
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/storage/mount"
)

func (m *machine) expandRequest(path string, bytes int64) *csi.NodeExpandVolumeRequest {
	return &csi.NodeExpandVolumeRequest{
		VolumeId: volumeID, VolumePath: path, StagingTargetPath: m.staging(),
		CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
	}
}

func TestExpand(t *testing.T) {
	tests := map[string]struct {
		capability *csi.VolumeCapability
		fstype     string
		path       func(m *machine) string
		bytes      int64
		first      []string // effects of the first call
		again      []string // and of a retry
	}{
		"ext4 by the pod's path":    {writer, "ext4", pod, 32 * mib, []string{"rescan", "resize2fs"}, []string{"resize2fs"}},
		"xfs by the staging path":   {writer, "xfs", (*machine).staging, 32 * mib, []string{"rescan", "xfs_growfs"}, []string{"xfs_growfs"}},
		"large enough already":      {writer, "ext4", pod, 16 * mib, []string{"resize2fs"}, []string{"resize2fs"}},
		"no size":                   {writer, "ext4", pod, 0, []string{"resize2fs"}, []string{"resize2fs"}},
		"block by the pod's path":   {blockCapability(), "ext4", pod, 32 * mib, []string{"rescan"}, nil},
		"block by its staging path": {blockCapability(), "ext4", (*machine).staging, 32 * mib, []string{"rescan"}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(tc.capability, attach.Prefix+"fs-type", tc.fstype)
			m.publish(tc.capability, "pod", false)
			for _, want := range [][]string{tc.first, tc.again} {
				m.trace = nil
				req := m.expandRequest(tc.path(m), tc.bytes)
				req.VolumeCapability = writer // says nothing about what is there
				resp, err := m.server().NodeExpandVolume(t.Context(), req)
				if err != nil || resp.CapacityBytes != max(tc.bytes, 16*mib) {
					t.Errorf("NodeExpandVolume = %v, %v, want %d bytes", resp, err, max(tc.bytes, 16*mib))
				}
				if diff := cmp.Diff(want, m.trace); diff != "" {
					t.Errorf("effects (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func pod(m *machine) string { return m.target("pod") }

func TestExpand_Refused(t *testing.T) {
	size := func(required, limit int64) func(*csi.NodeExpandVolumeRequest) {
		return func(r *csi.NodeExpandVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
		}
	}
	tests := map[string]struct {
		prepare func(m *machine)
		req     func(r *csi.NodeExpandVolumeRequest)
		code    csiserve.Code
		text    string
		trace   []string
	}{
		"no volume":          {nop, func(r *csi.NodeExpandVolumeRequest) { r.VolumeId = "" }, csiserve.InvalidArgument, "volume_id", nil},
		"no path":            {nop, func(r *csi.NodeExpandVolumeRequest) { r.VolumePath = "" }, csiserve.InvalidArgument, "volume_path", nil},
		"negative size":      {nop, size(-1, 0), csiserve.InvalidArgument, "capacity_range", nil},
		"limit below size":   {nop, size(2, 1), csiserve.InvalidArgument, "capacity_range", nil},
		"never issued":       {nop, func(r *csi.NodeExpandVolumeRequest) { r.VolumeId = "x" }, csiserve.NotFound, "never issued", nil},
		"unknown path":       {nop, func(r *csi.NodeExpandVolumeRequest) { r.VolumePath += "2" }, csiserve.NotFound, "not mounted there", nil},
		"another's path":     {func(m *machine) { m.table[3].Minor = 99 }, nil, csiserve.NotFound, "not mounted there", nil},
		"not staged":         {func(m *machine) { must(m, os.Remove(m.record())) }, nil, csiserve.FailedPrecondition, "not staged", nil},
		"record corrupt":     {func(m *machine) { must(m, os.WriteFile(m.record(), nil, 0o600)) }, nil, csiserve.Internal, "unusable", nil},
		"staging foreign":    {func(m *machine) { m.table[2].Minor = 99 }, nil, csiserve.Internal, "is not this volume", nil},
		"staging gone":       {func(m *machine) { m.table = append(mount.Table{}, m.table[0], m.table[1], m.table[3]) }, nil, csiserve.Internal, "nothing is mounted", nil},
		"B-460 device gone":  {func(m *machine) { m.connected = false }, nil, csiserve.Internal, "is gone", nil},
		"B-460 dead":         {func(m *machine) { m.dead = true }, nil, csiserve.Internal, "", nil},
		"does not grow":      {func(m *machine) { m.fail["rescan"] = errFake }, nil, csiserve.Internal, "", []string{"rescan"}},
		"limit fails":        {func(m *machine) { m.fail["limit"] = errFake }, nil, csiserve.Internal, "", []string{"rescan"}},
		"B-458 resize2fs":    {func(m *machine) { m.fail["resize2fs"] = errFake }, nil, csiserve.Internal, "grow ext4", []string{"rescan", "resize2fs"}},
		"no mount table":     {func(m *machine) { m.fail["table"] = errFake }, nil, csiserve.Internal, "", nil},
		"device cannot tell": {func(m *machine) { m.fail["find"] = errFake }, nil, csiserve.Internal, "", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(writer)
			m.publish(writer, "pod", false)
			tc.prepare(m)
			req := m.expandRequest(m.target("pod"), 32*mib)
			if tc.req != nil {
				tc.req(req)
			}
			_, err := m.server().NodeExpandVolume(t.Context(), req)
			if csiserve.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("NodeExpandVolume = %v (%v), want %v with %q", err, csiserve.CodeOf(err), tc.code, tc.text)
			}
			if diff := cmp.Diff(tc.trace, m.trace); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
		})
	}
}

// What may not change is not asked to.
func TestExpand_Unchangeable(t *testing.T) {
	tests := map[string]struct {
		capability *csi.VolumeCapability
		extra      []string
		text       string
	}{
		"B-461 preserved": {writer, []string{attach.Prefix + "import-policy", "PreserveOriginal"}, "cannot expand volume"},
		"read-only":       {reader, nil, "staged read-only"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.disk = ext4
			m.stage(tc.capability, tc.extra...)
			_, err := m.server().NodeExpandVolume(t.Context(), m.expandRequest(m.staging(), 32*mib))
			if csiserve.CodeOf(err) != csiserve.FailedPrecondition || !strings.Contains(err.Error(), tc.text) || m.trace != nil {
				t.Errorf("NodeExpandVolume = %v with effects %q, want FailedPrecondition with %q and none", err, m.trace, tc.text)
			}
		})
	}
}
