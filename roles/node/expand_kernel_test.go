package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

const growsName = "pillar-node-grows"

// growing is a worker whose volume's device changes its size.
func growing(t *testing.T, bytes int64) (*worker, *hosttest.Linear) {
	t.Helper()
	need(t)
	dev := hosttest.NewLinear(t, growsName, hosttest.Disk(t, 0), bytes)
	return newWorker(t, dev.Path), dev
}

// grow does the storage node's half.
func (w *worker) grow(dev *hosttest.Linear, bytes int64) {
	w.t.Helper()
	dev.Resize(bytes)
	w.must(w.target.Resize(w.ctx, agentVolume, w.backer))
}

func (w *worker) expand(path string, bytes int64) error {
	resp, err := w.server().NodeExpandVolume(w.ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: volumeID, VolumePath: path, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
	})
	if err == nil && resp.CapacityBytes < bytes {
		w.t.Errorf("NodeExpandVolume = %d bytes, want at least %d", resp.CapacityBytes, bytes)
	}
	return err
}

// filesystemBytes is the size statfs shows a pod.
func (w *worker) filesystemBytes() int64 {
	w.t.Helper()
	st, err := kernelProbe{}.Statfs(w.ctx, w.podPath("pod"))
	w.must(err)
	return int64(st.Blocks) * st.Frsize
}

// A filesystem grows under a pod that writes to it all the time.
func TestKernel_ExpandFilesystem(t *testing.T) {
	hosttest.Need(t, "ext4", "xfs", "bin:mkfs.xfs", "bin:resize2fs", "bin:xfs_growfs")
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			const before, after = 320 * mib, 400 * mib // xfs makes none below 300 MiB
			w, dev := growing(t, before)
			w.must(w.stage(writer, attach.Prefix+"fs-type", fstype))
			w.must(w.publish(writer, "pod", false))
			content := bytes.Repeat([]byte("kept "), mib)
			w.must(os.WriteFile(w.podPath("pod/data"), content, 0o600))
			stop := w.busy()
			small := w.filesystemBytes()
			w.must(w.expand(w.podPath("pod"), before)) // it fills the device
			if got := w.filesystemBytes(); got != small {
				t.Errorf("filesystem has %d bytes, want %d as before", got, small)
			}
			w.grow(dev, after)
			for range 2 {
				w.must(w.expand(w.podPath("pod"), after))
				if got := w.filesystemBytes(); got < small+(after-before)*9/10 {
					t.Errorf("filesystem has %d bytes, had %d, want about %d more", got, small, after-before)
				}
			}
			w.must(stop())
			if got, err := os.ReadFile(w.podPath("pod/data")); err != nil || !bytes.Equal(got, content) {
				t.Errorf("the pod reads %d other bytes, %v", len(got), err)
			}
			w.must(errors.Join(w.unpublish("pod"), w.unstage()))
			w.must(w.stage(writer, attach.Prefix+"fs-type", fstype)) // and it is still one filesystem
			w.must(w.unstage())
			w.nothingLeft()
		})
	}
}

// busy writes to the pod's volume until it is stopped, and says whether all of it worked.
func (w *worker) busy() (stop func() error) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = os.WriteFile(w.podPath("pod/busy"), bytes.Repeat([]byte("x"), mib), 0o600)
			time.Sleep(10 * time.Millisecond)
		}
		done <- err
	}()
	return func() error { cancel(); return <-done }
}

func TestKernel_ExpandBlock(t *testing.T) {
	w, dev := growing(t, 32*mib)
	block := blockCapability()
	w.must(w.stage(block))
	w.must(w.publish(block, "pod", false))
	w.grow(dev, 48*mib)
	w.must(w.expand(w.podPath("pod"), 48*mib))
	w.must(w.expand(w.stagingPath(), 48*mib))
	if size, err := blockdev.Size(w.podPath("pod")); err != nil || size != 48*mib {
		t.Errorf("the pod's device has %d bytes, %v, want 48 MiB", size, err)
	}
	short, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	late := &worker{t: t, ctx: short, host: w.host, target: w.target}
	if err := late.expand(w.podPath("pod"), 64*mib); csiserve.CodeOf(err) != csiserve.Internal {
		t.Errorf("expand past the device = %v, want Internal", err)
	}
	w.must(errors.Join(w.unpublish("pod"), w.unstage()))
	w.nothingLeft()
}

// The node plugin dies at any moment of an expand; the same call again finishes it.
func TestKernel_CrashExpand(t *testing.T) {
	hosttest.Need(t, "bin:resize2fs")
	size := int64(64 * mib)
	var dev *hosttest.Linear
	var w *worker
	if hosttest.InChild(t) {
		w = newWorker(t, "")
		var err error
		if size, err = blockdev.Size("/dev/mapper/" + growsName); err != nil {
			t.Fatal(err)
		}
	} else {
		w, dev = growing(t, size)
		w.must(errors.Join(w.stage(writer), w.publish(writer, "pod", false)))
		size += 8 * mib
		dev.Resize(size) // and the notice is lost: there is a scan to do
	}
	had := w.filesystemBytes()
	operation := func() error { return w.expand(w.podPath("pod"), size) }
	hosttest.EachCrash(t, operation, func(t *testing.T) {
		w := &worker{t: t, ctx: t.Context(), host: w.host, target: w.target, backer: w.backer}
		w.must(w.expand(w.podPath("pod"), size))
		now := w.filesystemBytes()
		if now < had+7*mib {
			t.Errorf("filesystem has %d bytes, had %d, want about 8 MiB more", now, had)
		}
		had = now
		size += 8 * mib
		dev.Resize(size)
	})
	w.must(errors.Join(w.unpublish("pod"), w.unstage()))
	w.nothingLeft()
}
