package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/storage/mount"
)

func TestStage(t *testing.T) {
	const fsType, mkfs, options = attach.Prefix + "fs-type", attach.Prefix + "mkfs-options", attach.Prefix + "mount-options"
	tests := map[string]struct {
		disk       map[int64]string
		capability *csi.VolumeCapability
		extra      []string
		trace      []string
	}{
		"blank, ext4":        {nil, writer, nil, []string{"connect", "mkfs.ext4", `mount ext4 []`}},
		"blank, xfs":         {nil, writer, []string{fsType, "xfs"}, []string{"connect", "mkfs.xfs", `mount xfs ["nouuid"]`}},
		"ext4 there":         {ext4, writer, nil, []string{"connect", `mount ext4 []`}},
		"mkfs options":       {nil, writer, []string{mkfs, `["-L","data"]`}, []string{"connect", "mkfs.ext4", `mount ext4 []`}},
		"mount flags":        {ext4, mountCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "noatime"), nil, []string{"connect", `mount ext4 ["noatime"]`}},
		"context's options":  {ext4, mountCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "noatime"), []string{options, `[]`}, []string{"connect", `mount ext4 []`}},
		"many readers":       {ext4, reader, nil, []string{"connect", `mount ext4 ["ro" "noload"]`}},
		"one reader":         {ext4, mountCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY), nil, []string{"connect", `mount ext4 ["ro"]`}},
		"block, never mkfs":  {nil, blockCapability(), nil, []string{"connect", "bind device false"}},
		"block with content": {xfs, blockCapability(), []string{fsType, "btrfs", mkfs, `["-n"]`}, []string{"connect", "bind device false"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			for off, text := range tc.disk {
				m.disk[off] = text
			}
			req := m.stageRequest(tc.capability, tc.extra...)
			if _, err := m.server().NodeStageVolume(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.trace, m.trace); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			m.trace = nil
			if _, err := m.server().NodeStageVolume(t.Context(), req); err != nil || m.trace != nil {
				t.Errorf("again = %v with effects %q, want success without any", err, m.trace)
			}
		})
	}
}

func TestStage_Refused(t *testing.T) {
	tests := map[string]struct {
		prepare func(m *machine)
		req     func(m *machine) *csi.NodeStageVolumeRequest
		code    csiserve.Code
		text    string
	}{
		"another filesystem": {func(m *machine) { m.disk = xfs }, nil, csiserve.FailedPrecondition, "xfs"},
		"a partition table":  {func(m *machine) { m.disk = map[int64]string{512: "EFI PART"} }, nil, csiserve.FailedPrecondition, "gpt"},
		"a broken ext4":      {func(m *machine) { m.disk = map[int64]string{4096: "x", 8193<<10 + 0x38: "\x53\xef"} }, nil, csiserve.FailedPrecondition, "backup superblock"},
		"unreadable start":   {func(m *machine) { m.bad = 1 }, nil, csiserve.Internal, "unknown"},
		"unreadable end":     {func(m *machine) { m.bad = 16*mib - 1 }, nil, csiserve.Internal, "unknown"},
		"mkfs fails":         {func(m *machine) { m.fail["mkfs.ext4"] = errFake }, nil, csiserve.Internal, "format"},
		"mount fails":        {func(m *machine) { m.fail["mount ext4 []"] = errFake }, nil, csiserve.Internal, ""},
		"connect fails":      {func(m *machine) { m.fail["connect"] = errFake }, nil, csiserve.Internal, ""},
		"limit fails":        {func(m *machine) { m.fail["limit"] = errFake }, nil, csiserve.Internal, ""},
		"does not answer":    {func(m *machine) { m.disk, m.dead = ext4, true }, nil, csiserve.Internal, ""},
		"path not shared":    {func(m *machine) { m.table[0].Shared = false }, nil, csiserve.FailedPrecondition, "not shared"},
		"blank for a reader": {func(*machine) {}, func(m *machine) *csi.NodeStageVolumeRequest { return m.stageRequest(reader) },
			csiserve.FailedPrecondition, "blank"},
		"blank, preserved": {func(*machine) {}, func(m *machine) *csi.NodeStageVolumeRequest {
			return m.stageRequest(writer, attach.Prefix+"import-policy", "PreserveOriginal")
		}, csiserve.FailedPrecondition, "cannot mount"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tc.prepare(m)
			req := m.stageRequest(writer)
			if tc.req != nil {
				req = tc.req(m)
			}
			_, err := m.server().NodeStageVolume(t.Context(), req)
			if csiserve.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("NodeStageVolume = %v (%v), want %v with %q", err, csiserve.CodeOf(err), tc.code, tc.text)
			}
			if m.connected || len(m.table) != 2 || m.recorded() {
				t.Errorf("left: connected %v, mounts %d, record %v; effects %q", m.connected, len(m.table)-2, m.recorded(), m.trace)
			}
		})
	}
}

// TestStage_Undo fails a stage whose undo fails too, or has nothing to undo.
func TestStage_Undo(t *testing.T) {
	t.Run("connected before", func(t *testing.T) {
		m := newMachine(t)
		m.connected, m.fail["mount ext4 []"] = true, errFake
		if _, err := m.server().NodeStageVolume(t.Context(), m.stageRequest(writer)); err == nil || !m.connected {
			t.Errorf("NodeStageVolume = %v, connected %v: not ours to disconnect", err, m.connected)
		}
	})
	t.Run("disconnect fails", func(t *testing.T) {
		m := newMachine(t)
		m.half, m.fail["connect"], m.fail["disconnect"] = true, errFake, errFake
		if _, err := m.server().NodeStageVolume(t.Context(), m.stageRequest(writer)); err == nil || !m.recorded() {
			t.Errorf("NodeStageVolume = %v, record %v: what may be connected must stay recorded", err, m.recorded())
		}
	})
	t.Run("unmount fails", func(t *testing.T) {
		m := newMachine(t)
		m.dead, m.disk, m.fail["unmount staging"] = true, ext4, errFake
		// The device opens, the filesystem on it does not answer.
		s := m.server()
		s.probe = aliveless{m}
		_, err := s.NodeStageVolume(t.Context(), m.stageRequest(writer))
		if err == nil || !strings.Contains(err.Error(), "then unmount") {
			t.Errorf("NodeStageVolume = %v, want both errors", err)
		}
		if !m.connected || !m.recorded() {
			t.Errorf("connected %v, record %v: what is mounted must stay connected and recorded", m.connected, m.recorded())
		}
	})
	t.Run("record cannot be written", func(t *testing.T) {
		m := newMachine(t)
		s := m.server()
		if err := os.Remove(filepath.Join(m.dir, "state")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.NodeStageVolume(t.Context(), m.stageRequest(writer)); err == nil || m.trace != nil {
			t.Errorf("NodeStageVolume = %v with effects %q, want an error before any", err, m.trace)
		}
	})
}

// TestStage_Hangs stages a block volume again whose device queues every read: the answer
// comes in time and the next call of the volume gets its turn.
func TestStage_Hangs(t *testing.T) {
	m := newMachine(t)
	m.stage(blockCapability())
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		s := m.server()
		s.probe = silent{m, never}
		start := time.Now()
		_, err := s.NodeStageVolume(t.Context(), m.stageRequest(blockCapability()))
		if err == nil || time.Since(start) > aliveWait {
			t.Errorf("NodeStageVolume = %v after %s, want an error within %s", err, time.Since(start), aliveWait)
		}
	})
}

// silent is a machine whose devices never answer.
type silent struct {
	*machine
	never chan struct{}
}

func (s silent) Open(string) (device, error) {
	<-s.never
	return nil, errFake
}

// aliveless is a machine whose devices open although its filesystems are dead.
type aliveless struct{ *machine }

func (a aliveless) Open(path string) (device, error) {
	return disk{m: a.machine, path: path, minor: a.minor}, nil
}

func TestStage_Resume(t *testing.T) {
	foreign := mount.Entry{Path: "", Root: "/", Major: 8, Minor: 9, Type: "ext4"}
	tests := map[string]struct {
		prepare func(m *machine)
		req     func(r *csi.NodeStageVolumeRequest)
		code    csiserve.Code
		trace   []string
	}{
		"rebooted": {func(m *machine) { m.table, m.connected, m.minor = m.table[:2], false, 7 }, nil, 0,
			[]string{"connect", "mount ext4 []"}},
		"connected, not mounted": {func(m *machine) { m.table = m.table[:2] }, nil, 0, []string{"mount ext4 []"}},
		"record lost":            {func(m *machine) { must(m, os.Remove(m.record())) }, nil, 0, nil},
		"record lost, foreign mount": {func(m *machine) {
			must(m, os.Remove(m.record()))
			foreign.Path = m.staging()
			m.table = append(m.table[:2], foreign)
		}, nil, csiserve.FailedPrecondition, nil},
		"record lost, other type": {func(m *machine) { must(m, os.Remove(m.record())) },
			func(r *csi.NodeStageVolumeRequest) { r.VolumeContext[attach.Prefix+"fs-type"] = "xfs" }, csiserve.AlreadyExists, nil},
		"record lost, device gone": {func(m *machine) { must(m, os.Remove(m.record())); m.connected = false }, nil, csiserve.FailedPrecondition, nil},
		"foreign mount":            {func(m *machine) { foreign.Path = m.staging(); m.table = append(m.table[:2], foreign) }, nil, csiserve.FailedPrecondition, nil},
		"device gone":              {func(m *machine) { m.connected = false }, nil, csiserve.Internal, nil},
		"does not answer":          {func(m *machine) { m.dead = true }, nil, csiserve.Internal, nil},
		"cannot tell":              {func(m *machine) { m.fail["find"] = errFake }, nil, csiserve.Internal, nil},
		"no mount table":           {func(m *machine) { m.fail["table"] = errFake }, nil, csiserve.Internal, nil},
		"record corrupt":           {func(m *machine) { must(m, os.WriteFile(m.record(), []byte("{"), 0o600)) }, nil, csiserve.Internal, nil},
		"another address":          {nop, func(r *csi.NodeStageVolumeRequest) { r.VolumeContext["address"] = "10.0.0.2" }, csiserve.FailedPrecondition, nil},
		"another path":             {nop, func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath += "2" }, csiserve.FailedPrecondition, nil},
		"another access type":      {nop, func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = blockCapability() }, csiserve.AlreadyExists, nil},
		"another filesystem":       {nop, func(r *csi.NodeStageVolumeRequest) { r.VolumeContext[attach.Prefix+"fs-type"] = "xfs" }, csiserve.AlreadyExists, nil},
		"read-only now":            {nop, func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = reader }, csiserve.AlreadyExists, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stage(writer)
			tc.prepare(m)
			req := m.stageRequest(writer)
			if tc.req != nil {
				tc.req(req)
			}
			_, err := m.server().NodeStageVolume(t.Context(), req)
			if csiserve.CodeOf(err) != tc.code {
				t.Errorf("NodeStageVolume = %v (%v), want %v", err, csiserve.CodeOf(err), tc.code)
			}
			if diff := cmp.Diff(tc.trace, m.trace); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if lost := strings.HasPrefix(name, "record lost, "); m.recorded() == lost {
				t.Errorf("record %v, want %v", m.recorded(), !lost)
			}
		})
	}
}

func nop(*machine) {}

func must(m *machine, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func TestStage_Invalid(t *testing.T) {
	tests := map[string]func(r *csi.NodeStageVolumeRequest){
		"no volume ID":    func(r *csi.NodeStageVolumeRequest) { r.VolumeId = "" },
		"no staging path": func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "" },
		"relative path":   func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "staging" },
		"path with dots":  func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath += "/../x" },
		"no capability":   func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nil },
		"no access type":  func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessType = nil },
		"two writers": func(r *csi.NodeStageVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		},
		"no access mode":  func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessMode = nil },
		"no context":      func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = nil },
		"filesystem type": func(r *csi.NodeStageVolumeRequest) { r.VolumeContext[attach.Prefix+"fs-type"] = "btrfs" },
		"mkfs option":     func(r *csi.NodeStageVolumeRequest) { r.VolumeContext[attach.Prefix+"mkfs-options"] = `["-n"]` },
		"mkfs, not JSON":  func(r *csi.NodeStageVolumeRequest) { r.VolumeContext[attach.Prefix+"mkfs-options"] = `-L x` },
		"mount, not JSON": func(r *csi.NodeStageVolumeRequest) { r.VolumeContext[attach.Prefix+"mount-options"] = `noatime` },
		"mount option": func(r *csi.NodeStageVolumeRequest) {
			r.VolumeContext[attach.Prefix+"mount-options"] = `["noatime,remount"]`
		},
		"mount journal device": func(r *csi.NodeStageVolumeRequest) {
			r.VolumeContext[attach.Prefix+"mount-options"] = `["journal_path=/dev/sda"]`
		},
		"import policy": func(r *csi.NodeStageVolumeRequest) { r.VolumeContext[attach.Prefix+"import-policy"] = "Whatever" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			req := m.stageRequest(mountCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER))
			change(req)
			_, err := m.server().NodeStageVolume(t.Context(), req)
			if csiserve.CodeOf(err) != csiserve.InvalidArgument || m.trace != nil {
				t.Errorf("NodeStageVolume = %v with effects %q, want InvalidArgument and none", err, m.trace)
			}
		})
	}
}

func TestStage_ForeignID(t *testing.T) {
	m := newMachine(t)
	req := m.stageRequest(writer)
	req.VolumeId = "pvc-1"
	_, err := m.server().NodeStageVolume(t.Context(), req)
	if csiserve.CodeOf(err) != csiserve.NotFound || m.trace != nil {
		t.Errorf("NodeStageVolume(%s) = %v with effects %q, want NotFound and none", req.VolumeId, err, m.trace)
	}
}
