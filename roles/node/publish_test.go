package node

import (
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage/mount"
)

func TestPublish(t *testing.T) {
	tests := map[string]struct {
		capability *csi.VolumeCapability
		staged     *csi.VolumeCapability
		readOnly   bool
		trace      []string
	}{
		"filesystem":            {writer, writer, false, []string{"bind pod false"}},
		"filesystem, read-only": {writer, writer, true, []string{"bind pod true"}},
		"reader's volume":       {reader, reader, false, []string{"bind pod true"}},
		"block":                 {blockCapability(), blockCapability(), false, []string{"bind pod false"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.disk = ext4
			m.stage(tc.staged)
			for _, want := range [][]string{tc.trace, nil} {
				m.trace = nil
				_, err := m.server().NodePublishVolume(t.Context(), m.publishRequest(tc.capability, "pod", tc.readOnly))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, m.trace); diff != "" {
					t.Errorf("effects (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestPublish_Refused(t *testing.T) {
	tests := map[string]struct {
		prepare func(m *machine)
		req     func(r *csi.NodePublishVolumeRequest)
		code    csiserve.Code
	}{
		"not staged":            {func(m *machine) { must(m, os.Remove(m.record())) }, nil, csiserve.FailedPrecondition},
		"record corrupt":        {func(m *machine) { must(m, os.WriteFile(m.record(), nil, 0o600)) }, nil, csiserve.Internal},
		"staging not mounted":   {func(m *machine) { m.table = m.table[:2] }, nil, csiserve.FailedPrecondition},
		"staging mount foreign": {func(m *machine) { m.table[2].Minor = 99 }, nil, csiserve.FailedPrecondition},
		"device gone":           {func(m *machine) { m.connected = false }, nil, csiserve.Internal},
		"does not answer":       {func(m *machine) { m.dead = true }, nil, csiserve.Internal},
		"target not shared":     {func(m *machine) { m.table[0].Shared = false }, nil, csiserve.FailedPrecondition},
		"bind fails":            {func(m *machine) { m.fail["bind pod false"] = errFake }, nil, csiserve.Internal},
		"foreign mount there": {func(m *machine) {
			m.table = append(m.table, mount.Entry{Path: m.target("pod"), Root: "/", Major: 8, Minor: 9})
		},
			nil, csiserve.AlreadyExists},
		"part of the volume there": {func(m *machine) {
			m.table = append(m.table, mount.Entry{Path: m.target("pod"), Root: "/sub", Major: 259, Minor: 1})
		}, nil, csiserve.AlreadyExists},
		"there, but read-only":  {func(m *machine) { m.publish(writer, "pod", true) }, nil, csiserve.AlreadyExists},
		"another staging path":  {nop, func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath += "2" }, csiserve.FailedPrecondition},
		"another access type":   {nop, func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = blockCapability() }, csiserve.FailedPrecondition},
		"no volume ID":          {nop, func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }, csiserve.InvalidArgument},
		"no staging path":       {nop, func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "" }, csiserve.InvalidArgument},
		"no target path":        {nop, func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "" }, csiserve.InvalidArgument},
		"target path with dots": {nop, func(r *csi.NodePublishVolumeRequest) { r.TargetPath += "/../../etc" }, csiserve.InvalidArgument},
		"no capability":         {nop, func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }, csiserve.InvalidArgument},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(writer)
			tc.prepare(m)
			req := m.publishRequest(writer, "pod", false)
			if tc.req != nil {
				tc.req(req)
			}
			mounts := len(m.table)
			_, err := m.server().NodePublishVolume(t.Context(), req)
			if csiserve.CodeOf(err) != tc.code || len(m.table) != mounts {
				t.Errorf("NodePublishVolume = %v (%v) and %d more mounts, want %v and none",
					err, csiserve.CodeOf(err), len(m.table)-mounts, tc.code)
			}
		})
	}
}

func TestUnpublish(t *testing.T) {
	tests := map[string]struct {
		prepare func(m *machine)
		code    csiserve.Code
		trace   []string
		target  bool // stays
	}{
		"published":         {nop, 0, []string{"unmount pod"}, false},
		"stacked mounts":    {func(m *machine) { e := m.table[3]; m.table = append(m.table, e) }, 0, []string{"unmount pod", "unmount pod"}, false},
		"already unmounted": {func(m *machine) { m.table = m.table[:3] }, 0, nil, false},
		"path removed too":  {func(m *machine) { m.table = m.table[:3]; must(m, os.Remove(m.target("pod"))) }, 0, nil, false},
		"device gone":       {func(m *machine) { m.connected = false }, 0, []string{"unmount pod"}, false},
		"foreign mount":     {func(m *machine) { m.table[3].Minor = 99 }, csiserve.FailedPrecondition, nil, true},
		"foreign mount on top": {func(m *machine) {
			m.table = append(m.table, mount.Entry{Path: m.target("pod"), Root: "/", Major: 8, Minor: 9})
		}, csiserve.FailedPrecondition, nil, true},
		"unmount busy":   {func(m *machine) { m.fail["unmount pod"] = errFake }, csiserve.Internal, []string{"unmount pod"}, true},
		"no record":      {func(m *machine) { must(m, os.Remove(m.record())) }, csiserve.FailedPrecondition, nil, true},
		"record corrupt": {func(m *machine) { must(m, os.WriteFile(m.record(), nil, 0o600)) }, csiserve.Internal, nil, true},
		"written past the mount": {func(m *machine) {
			m.table = m.table[:3]
			must(m, os.WriteFile(m.target("pod")+"/file", nil, 0o600))
		}, csiserve.Internal, nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(writer)
			m.publish(writer, "pod", false)
			tc.prepare(m)
			_, err := m.server().NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volumeID, TargetPath: m.target("pod")})
			if csiserve.CodeOf(err) != tc.code {
				t.Errorf("NodeUnpublishVolume = %v (%v), want %v", err, csiserve.CodeOf(err), tc.code)
			}
			if diff := cmp.Diff(tc.trace, m.trace); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if there, _ := exists(m.target("pod")); there != tc.target {
				t.Errorf("target there = %v, want %v", there, tc.target)
			}
		})
	}
}
