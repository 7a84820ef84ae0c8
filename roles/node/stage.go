package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/roles/node/staging"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/filesystem"
)

// NodeStageVolume connects a volume and mounts it at the staging path, or binds its device
// below it. It formats only what blkid has proven blank.
func (s *Server) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	want, err := parseStage(req, s.cfg.PageSize)
	if err != nil {
		return nil, err
	}
	if err := s.attach.Offers(want.Source); err != nil {
		return nil, err
	}
	v, err := s.look(ctx, want.VolumeID, &want.Source)
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", want.VolumeID, err)
	}
	next, err := resume(v, want.Record)
	switch {
	case err != nil:
	case next == mounted:
		err = s.confirm(ctx, v, want.Record)
	default:
		err = s.fresh(ctx, v, want)
	}
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", want.VolumeID, err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// progress is how far an earlier stage came.
type progress int

const (
	unmounted progress = iota // not at all, or connected without a mount
	mounted
)

// resume compares what is there with what is wanted (block.md B-314, B-315). Pure.
func resume(v view, want staging.Record) (progress, error) {
	at := point(want.Access, want.StagingPath)
	occupied := len(v.table.At(want.StagingPath))+len(v.table.At(point(staging.Block, want.StagingPath))) > 0
	if v.recorded && (v.connected || len(v.table.At(point(v.rec.Access, v.rec.StagingPath))) > 0) {
		switch {
		case !v.rec.Source.Same(want.Source):
			return 0, precondition("it is staged from another target; unstage it first")
		case v.rec.StagingPath != want.StagingPath:
			return 0, precondition("it is staged at %s; unstage it there first", v.rec.StagingPath)
		case !v.rec.Compatible(want):
			return 0, csiserve.As(csiserve.AlreadyExists, fmt.Errorf("it is staged as %s %s, read-only %v",
				v.rec.Access, v.rec.FSType, v.rec.ReadOnly))
		}
	}
	if len(v.table.At(at)) > 0 {
		return mounted, nil
	}
	if occupied {
		return 0, precondition("something else is mounted at %s", want.StagingPath)
	}
	return unmounted, nil
}

// confirm accepts a mount that is there already, once it is proven to be this volume and
// to answer, and writes the record that a crash or its loss left missing.
func (s *Server) confirm(ctx context.Context, v view, want staging.Record) error {
	if err := s.proveMounted(ctx, v, want.Access, want.StagingPath); err != nil {
		return err
	}
	if err := s.attach.Limit(ctx, want.Source); err != nil {
		return err
	}
	if v.recorded && !v.rec.StagedAt.IsZero() {
		csiserve.Unchanged(ctx)
		return nil
	}
	top, _ := v.table.At(point(want.Access, want.StagingPath)).Top()
	if want.Access == staging.Filesystem && (top.Type != want.FSType || top.ReadOnly != want.ReadOnly) {
		return csiserve.As(csiserve.AlreadyExists, fmt.Errorf("it is mounted as %s, read-only %v", top.Type, top.ReadOnly))
	}
	want.StagedAt = time.Now().UTC()
	return s.records.Write(want)
}

// proveMounted returns nil only if the top mount at the staging point shows the connected
// device of the volume and answers.
func (s *Server) proveMounted(ctx context.Context, v view, access staging.Access, stagingPath string) error {
	at := point(access, stagingPath)
	top, ok := v.table.At(at).Top()
	if !ok {
		return precondition("nothing is mounted at %s", at)
	}
	if !v.connected {
		if v.recorded {
			return fmt.Errorf("the device behind %s is gone", at)
		}
		return precondition("%s is mounted, but this volume has no device", at)
	}
	if !shows(top, access, v.dev) {
		return precondition("the mount at %s (device %d:%d) is not this volume (%d:%d)", at, top.Major, top.Minor, v.dev.Major, v.dev.Minor)
	}
	return s.alive(ctx, access, at, v.dev)
}

// alive proves that a mounted filesystem, or the bound device, answers. A bound node may
// have outlived its device and name another (block.md B-377): it is opened where it is
// bound and compared.
func (s *Server) alive(ctx context.Context, access staging.Access, at string, dev attach.Device) error {
	if access == staging.Filesystem {
		return s.probe.Alive(ctx, at)
	}
	ctx, cancel := context.WithTimeout(ctx, aliveWait)
	defer cancel()
	return bounded(ctx, func() error {
		d, err := s.probe.Open(at)
		if err != nil {
			return err
		}
		defer d.Close()
		if major, minor := d.Numbers(); major != dev.Major || minor != dev.Minor {
			return fmt.Errorf("the node bound at %s is device %d:%d, this volume is %d:%d", at, major, minor, dev.Major, dev.Minor)
		}
		if _, err := d.ReadAt(make([]byte, 512), 0); err != nil {
			return fmt.Errorf("read %s: %w", at, err)
		}
		return nil
	})
}

// fresh does all of a stage: intent, connection, filesystem, mount, record. A failure
// undoes what this call did and nothing else.
func (s *Server) fresh(ctx context.Context, v view, want stageRequest) (err error) {
	var done undo
	defer func() {
		if err != nil {
			err = done.run(ctx, err)
		}
	}()
	if err := shared(v.table, want.StagingPath); err != nil {
		return err
	}
	want.LastTrim = v.rec.LastTrim
	if !v.recorded {
		done.add("remove the stage record", func(context.Context) error { return s.records.Remove(want.VolumeID) })
	}
	if err := s.records.Write(want.Record); err != nil {
		return err
	}
	dev, err := s.attach.Attach(ctx, want.Source)
	if dev.Created {
		done.add("disconnect", func(ctx context.Context) error { return s.attach.Detach(ctx, want.Source) })
	}
	if err != nil {
		return err
	}
	if err := s.attach.Limit(ctx, want.Source); err != nil {
		return err
	}
	if err := s.expose(ctx, want, dev, &done); err != nil {
		return err
	}
	want.StagedAt = time.Now().UTC()
	return s.records.Write(want.Record)
}

// expose makes the connected device visible at the staging path and looks at the result.
func (s *Server) expose(ctx context.Context, want stageRequest, dev attach.Device, done *undo) error {
	d, err := s.openExactly(ctx, want.Source, dev)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := makeDir(want.StagingPath); err != nil {
		return err
	}
	at := point(want.Access, want.StagingPath)
	if want.Access == staging.Block {
		err = s.bindDevice(dev.Path, at)
	} else {
		err = s.mountFilesystem(ctx, want, d)
	}
	if err != nil {
		return err
	}
	done.add("unmount "+at, func(context.Context) error { return s.mounts.Unmount(at) })
	table, err := s.mounts.Table()
	if err != nil {
		return err
	}
	return s.proveMounted(ctx, view{recorded: true, dev: dev, connected: true, table: table}, want.Access, want.StagingPath)
}

// openExactly opens the device and then proves that its node, the open file and the
// volume's target are one (block.md B-335). From here the name stays this device's.
func (s *Server) openExactly(ctx context.Context, source attach.Source, dev attach.Device) (device, error) {
	d, err := s.probe.Open(dev.Path)
	if err != nil {
		return nil, err
	}
	now, found, err := s.attach.Find(ctx, source)
	major, minor := d.Numbers()
	switch {
	case err != nil:
	case !found || now.Path != dev.Path || now.Major != major || now.Minor != minor:
		err = fmt.Errorf("%s (%d:%d) is no longer the device of this volume", dev.Path, major, minor)
	case d.Size() <= 0:
		err = fmt.Errorf("%s has a size of %d bytes", dev.Path, d.Size())
	default:
		return d, nil
	}
	return nil, errors.Join(err, d.Close())
}

func (s *Server) mountFilesystem(ctx context.Context, want stageRequest, d device) error {
	_, err := s.format.Prepare(ctx, d, filesystem.Want{
		Type: want.FSType, Options: want.MkfsOptions, Format: !want.ReadOnly && !want.Preserve,
	})
	if errors.Is(err, storage.ErrPrecondition) && want.Preserve {
		return fmt.Errorf("cannot mount the preserved volume: %w", err)
	}
	if err != nil {
		return err
	}
	return s.mounts.Mount(d.Path(), want.StagingPath, want.FSType, want.MountOptions)
}

func (s *Server) bindDevice(devicePath, at string) error {
	if err := makeFile(at); err != nil {
		return err
	}
	return s.mounts.Bind(devicePath, at, false)
}

func precondition(format string, args ...any) error {
	return csiserve.As(csiserve.FailedPrecondition, fmt.Errorf(format, args...))
}
