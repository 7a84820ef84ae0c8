package node

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage/mount"
)

func (m *machine) unstage() error {
	_, err := m.server().NodeUnstageVolume(m.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: m.staging()})
	return err
}

func TestUnstage(t *testing.T) {
	whole := []string{"unmount staging", "flush", "disconnect"}
	tests := map[string]struct {
		capability *csi.VolumeCapability
		prepare    func(m *machine)
		trace      []string
	}{
		"filesystem":    {writer, nop, whole},
		"block":         {blockCapability(), nop, []string{"unmount device", "flush", "disconnect"}},
		"stacked":       {writer, func(m *machine) { m.table = append(m.table, m.table[2]) }, append([]string{"unmount staging"}, whole...)},
		"not mounted":   {writer, func(m *machine) { m.table = m.table[:2] }, []string{"flush", "disconnect"}},
		"not connected": {writer, func(m *machine) { m.table, m.connected = m.table[:2], false }, nil},
		"device gone":   {writer, func(m *machine) { m.connected = false }, []string{"unmount staging"}},
		"half a session": {writer, func(m *machine) {
			m.table, m.connected, m.half = m.table[:2], false, true
			must(m, os.Remove(m.record()))
		}, []string{"disconnect"}},
		"only a session": {writer, func(m *machine) { m.table = m.table[:2]; must(m, os.Remove(m.record())) }, []string{"flush", "disconnect"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(tc.capability)
			tc.prepare(m)
			for _, want := range [][]string{tc.trace, nil} {
				m.trace = nil
				if err := m.unstage(); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, m.trace); diff != "" {
					t.Errorf("effects (-want +got):\n%s", diff)
				}
			}
			if m.connected || m.half || m.recorded() || len(m.table) != 2 {
				t.Errorf("left: connected %v, record %v, mounts %v", m.connected, m.recorded(), m.table[2:])
			}
		})
	}
}

func TestUnstage_Refused(t *testing.T) {
	tests := map[string]struct {
		prepare func(m *machine)
		code    csiserve.Code
		text    string
	}{
		"published":          {func(m *machine) { m.publish(writer, "pod", false) }, csiserve.FailedPrecondition, "still published"},
		"subdirectory bound": {func(m *machine) { m.add(mount.Entry{Path: "/x", Root: "/sub", Major: 259, Minor: 1}) }, csiserve.FailedPrecondition, "still published"},
		"unmount fails":      {func(m *machine) { m.fail["unmount staging"] = errFake }, csiserve.Internal, ""},
		"held elsewhere":     {func(m *machine) { m.busy = true }, csiserve.Internal, "stays connected"},
		"flush fails":        {func(m *machine) { m.fail["flush"] = errFake }, csiserve.Internal, ""},
		"disconnect fails":   {func(m *machine) { m.fail["disconnect"] = errFake }, csiserve.Internal, ""},
		"cannot tell":        {func(m *machine) { m.fail["find"] = errFake }, csiserve.Internal, ""},
		"foreign mount":      {func(m *machine) { m.table[2].Minor = 99 }, csiserve.FailedPrecondition, "not this volume"},
		"record corrupt":     {func(m *machine) { must(m, os.WriteFile(m.record(), nil, 0o600)) }, csiserve.Internal, "unusable"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(writer)
			tc.prepare(m)
			err := m.unstage()
			if csiserve.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("NodeUnstageVolume = %v (%v), want %v with %q", err, csiserve.CodeOf(err), tc.code, tc.text)
			}
			if !m.connected || !m.recorded() {
				t.Errorf("connected %v, record %v: both must stay", m.connected, m.recorded())
			}
		})
	}
}

func TestUnstage_RecordMissing(t *testing.T) {
	for name, capability := range map[string]*csi.VolumeCapability{"filesystem": writer, "block": blockCapability()} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(capability)
			must(m, os.Remove(m.record()))
			err := m.unstage()
			if csiserve.CodeOf(err) != csiserve.Internal {
				t.Errorf("NodeUnstageVolume = %v, want Internal", err)
			}
			for _, text := range []string{"stage state for", "is missing but", "is still mounted; refusing to report the volume unstaged"} {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("message %q lacks %q", err, text)
				}
			}
			if m.trace != nil || !m.connected {
				t.Errorf("effects %q, connected %v, want nothing touched", m.trace, m.connected)
			}
		})
	}
}

func TestUnstage_NeverStaged(t *testing.T) {
	for _, id := range []string{volumeID, "nonsense"} {
		m := newMachine(t)
		_, err := m.server().NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: m.staging()})
		if err != nil || m.trace != nil {
			t.Errorf("NodeUnstageVolume(%s) = %v with effects %q, want success without", id, err, m.trace)
		}
	}
}

// TestUnstage_ClaimedSession meets a connection that belongs to another volume of the same
// derived NQN: it is in use.
func TestUnstage_ClaimedSession(t *testing.T) {
	m := newMachine(t)
	m.stage(blockCapability())
	const twin = "storage-2/nvmeof-tcp/lvm-lv/vg0/pvc-1"
	_, err := m.server().NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: twin, StagingTargetPath: "/elsewhere"})
	if err != nil || !m.connected {
		t.Errorf("NodeUnstageVolume(%s) = %v, connected %v, want the other's connection kept", twin, err, m.connected)
	}
}

// TestTrailingSlash: a path is the same with a slash behind it.
func TestTrailingSlash(t *testing.T) {
	m := newMachine(t)
	m.stage(writer)
	m.publish(writer, "pod", false)
	s := m.server()
	_, stats := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volumeID, VolumePath: m.staging() + "/"})
	_, unpublish := s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volumeID, TargetPath: m.target("pod") + "/"})
	_, unstage := s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: m.staging() + "/"})
	if err := errors.Join(stats, unpublish, unstage); err != nil || m.connected || len(m.table) != 2 {
		t.Errorf("calls = %v, connected %v, mounts %d, want all taken back", err, m.connected, len(m.table)-2)
	}
}

func TestStats(t *testing.T) {
	fs := []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: 409600, Available: 204800, Used: 163840},
		{Unit: csi.VolumeUsage_INODES, Total: 10, Available: 7, Used: 3},
	}
	tests := map[string]struct {
		capability *csi.VolumeCapability
		prepare    func(m *machine)
		path       string
		want       []*csi.VolumeUsage
		code       csiserve.Code
	}{
		"target":           {writer, nop, "pod", fs, 0},
		"staging path":     {writer, nop, "staging", fs, 0},
		"block target":     {blockCapability(), nop, "pod", []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 16 * mib}}, 0},
		"path not mounted": {writer, nop, "other", nil, csiserve.NotFound},
		"foreign mount":    {writer, func(m *machine) { m.table[3].Minor = 99 }, "pod", nil, csiserve.NotFound},
		"not staged":       {writer, func(m *machine) { must(m, os.Remove(m.record())) }, "pod", nil, csiserve.NotFound},
		"device gone":      {writer, func(m *machine) { m.connected = false }, "pod", nil, csiserve.Internal},
		"does not answer":  {writer, func(m *machine) { m.dead = true }, "pod", nil, csiserve.Internal},
		"record corrupt":   {writer, func(m *machine) { must(m, os.WriteFile(m.record(), nil, 0o600)) }, "pod", nil, csiserve.Internal},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(tc.capability)
			m.publish(tc.capability, "pod", false)
			tc.prepare(m)
			resp, err := m.server().NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volumeID, VolumePath: m.target(tc.path)})
			if csiserve.CodeOf(err) != tc.code {
				t.Errorf("NodeGetVolumeStats = %v (%v), want %v", err, csiserve.CodeOf(err), tc.code)
			}
			if diff := cmp.Diff(usages(tc.want), usages(resp.GetUsage())); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}

func usages(us []*csi.VolumeUsage) []string {
	var out []string
	for _, u := range us {
		out = append(out, u.String())
	}
	return out
}
