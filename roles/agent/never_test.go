package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

// nevers are the rows of block.md 11 that the agent owns. Those that touch the kernel are
// kernelNevers; every call of a stale controller is TestAgent_staleController (N-3, N-4),
// a power cut TestStore_powerCut (N-6), what a device shows storagetest and storage/lvm (N-9),
// a foreign name TestAgent_madeByHand (N-52), and what nvmet lets a host see TestTarget_rules
// and TestKernel_denied* (N-11 to N-14, N-29).
var nevers = map[string]func(r *rig){
	"N-3 an older request undoes a newer one": func(r *rig) {
		r.exported(1, host1)
		r.must(r.deny(3, host1))
		r.must(r.allow(4, host2))
		r.stale(r.allow(2, host1), r.deny(3, host2), r.reconcile(r.t.Context(), true, token(2)))
		r.admits(host2)
	},
	"N-5 access is granted again after a revoke": func(r *rig) {
		r.exported(1, host1)
		before := itemOf(2, host1)
		r.must(r.deny(3, host1))
		for _, complete := range []bool{false, true} {
			r.stale(r.sends(complete, before))
		}
		r.admits()
		r.reboot()
		r.stale(r.sends(true, before))
		r.must(r.sends(true, itemOf(3)))
		r.admits()
	},
	"N-6 a mark that cannot be read is taken for another or for none": func(r *rig) {
		r.exported(1, host1)
		r.kernel.Trace()
		mark := filepath.Join(r.dir, "state/generations", durable.Name(idA.String())+".json")
		sound, err := os.ReadFile(mark)
		r.must(err)
		for what, content := range map[string][]byte{
			"empty": {}, "cut": sound[:len(sound)/2], "another volume's": bytes.Replace(sound, []byte("vg0/a"), []byte("vg0/b"), 1),
		} {
			r.must(os.WriteFile(mark, content, 0o600))
			for rpc, call := range fenced(r, r.t.Context()) {
				if err := call(token(9)); !errors.Is(err, fencing.ErrMark) || agentrpc.CodeOf(err).String() != "Internal" {
					r.t.Errorf("%s with a mark that is %s = %v, want ErrMark, Internal", rpc, what, err)
				}
			}
			if got, err := os.ReadFile(mark); err != nil || !bytes.Equal(got, content) {
				r.t.Errorf("the mark that is %s became %q, %v", what, got, err)
			}
		}
		r.untouched()
	},
	"N-8 a failure of the tools is read as absent": func(r *rig) {
		r.exported(1, host1)
		r.kernel.Trace()
		r.mem.Fail(errors.New("lvs: exit status 5: Input/output error"))
		for rpc, err := range map[string]error{
			"CreateVolume": second(r.CreateVolume(r.t.Context(), token(3), spec(5<<20))), "DeleteVolume": r.remove(token(3)),
			"ExportVolume": second(r.ExportVolume(r.t.Context(), token(3), storage.LVMLV, export(host2))), "ExpandVolume": r.expand(3, idA, 16<<20),
		} {
			if code := agentrpc.CodeOf(err).String(); code != "Internal" {
				r.t.Errorf("%s = %v, want Internal", rpc, err)
			}
		}
		r.mem.Fail(nil)
		r.untouched()
	},
	"N-10 a late or repeated create wipes data": func(r *rig) {
		r.create(1)
		d, err := r.mem.Open("/dev/vg0/a")
		r.must(err)
		data := []byte("acknowledged")
		_, err = d.WriteAt(data, 0)
		r.must(err)
		r.create(1)
		r.must(second(r.ExportVolume(r.t.Context(), token(2), storage.LVMLV, export(host1))))
		r.stale(second(r.CreateVolume(r.t.Context(), token(1), spec(5<<20))))
		r.create(2)
		got := make([]byte, len(data))
		if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
			r.t.Errorf("volume holds %q, %v, want %q", got, err, data)
		}
	},
	"N-11 the identity stands on a file": func(r *rig) {
		r.exported(1, host1)
		before := r.identity()
		r.must(os.RemoveAll(filepath.Join(r.dir, "state/nvmet-identity")))
		r.must(os.RemoveAll(filepath.Join(r.dir, "state/generations")))
		r.reboot()
		r.must(r.sends(true, itemOf(2, host1)))
		if after := r.identity(); after != before {
			r.t.Errorf("identity after the loss of every file: %s, before: %s", after, before)
		}
	},
	"N-12 N-13 a port opens before all of its volumes are behind it": neverHalfOpen,
	"N-14 the request chooses the device": func(r *rig) {
		r.create(1)
		e := export(host1)
		e.DevicePath = "/dev/vg0/b"
		err := second(r.ExportVolume(r.t.Context(), token(2), storage.LVMLV, e))
		r.wants(err, "FailedPrecondition", "/dev/vg0/b", "/dev/vg0/a")
		r.untouched()
	},
	"N-43 another layout places data elsewhere": func(r *rig) {
		thin := spec(5 << 20)
		thin.LVM = &storage.LVMParams{VolumeGroup: "vg0", Mode: "thin", ThinPool: "tp"}
		r.wants(second(r.CreateVolume(r.t.Context(), token(1), thin)), "FailedPrecondition", "tp")
		r.wantGone()
	},
	"N-44 an export goes because it is not listed": func(r *rig) {
		r.exported(1, host1)
		b := storage.VolumeID{Pool: "vg0", Name: "b"}
		r.exportedAs(b, 1, host1)
		r.kernel.Trace()
		r.must(r.stop())
		r.start()
		r.must(r.sends(true, itemOf(2, host1)))
		r.must(r.sends(false))
		r.untouched()
		if got := r.links(); len(got) != 2 {
			r.t.Errorf("exports = %q, want both", got)
		}
	},
	"N-46 a backend becomes smaller": func(r *rig) {
		r.create(1)
		r.must(r.expand(2, idA, 16<<20))
		r.wants(r.expand(3, idA, 5<<20), "OutOfRange", "cannot shrink")
		r.must(r.expand(3, idA, 13<<20)) // rounded it is what there is
		r.wants(second(r.CreateVolume(r.t.Context(), token(3), spec(5<<20))), "AlreadyExists")
		if vol, err := r.mem.Inspect(r.t.Context(), "a"); err != nil || vol.Bytes != 16<<20 {
			r.t.Errorf("volume = %+v, %v, want 16 MiB", vol, err)
		}
	},
	"N-48 two agents share a state directory": func(r *rig) {
		if st, err := openState(filepath.Join(r.dir, "state")); err == nil || !strings.Contains(err.Error(), "in use by another agent") {
			r.t.Errorf("openState while an agent runs = %v, %v, want a refusal", st, err)
		}
	},
	"N-50 a name becomes an option, a path or another device": neverAName,
	"N-51 a delete ends nothing, or ends a successor": func(r *rig) {
		r.create(1)
		for range 3 { // the controller died before it heard of the first
			r.must(r.remove(token(2)))
		}
		r.must(second(r.CreateVolume(r.t.Context(), uidB, spec(5<<20))))
		r.stale(r.remove(token(2)), r.remove(token(3)))
		r.wantThere(storage.Owner(uidB.UID))
	},
}

func TestNever(t *testing.T) {
	for name, never := range nevers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.open()
			never(r)
		})
	}
}

// neverHalfOpen restores three volumes after a reboot: before the first is linked all are
// ready, and no host but the listed is ever admitted.
func neverHalfOpen(r *rig) {
	items := []agentrpc.Item{itemOf(2, host1)}
	r.exported(1, host1)
	for _, name := range []string{"b", "c"} {
		id := storage.VolumeID{Pool: "vg0", Name: name}
		r.exportedAs(id, 1, host1)
		it := itemOf(2, host1)
		it.Export.Volume = id.String()
		items = append(items, it)
	}
	r.reboot()
	r.must(r.sends(true, items...))
	enabled, linked := 0, 0
	for _, line := range r.kernel.Trace() {
		switch {
		case strings.HasSuffix(line, "/enable 1"):
			enabled++
		case strings.HasPrefix(line, "link nvmet/ports/"):
			if linked++; enabled < len(items) {
				r.t.Errorf("%q while %d of %d volumes were ready", line, enabled, len(items))
			}
		case strings.HasSuffix(line, "attr_allow_any_host 1"):
			r.t.Errorf("%q: anyone was admitted", line)
		}
	}
	if linked != len(items) {
		r.t.Errorf("%d volumes are reachable, want %d", linked, len(items))
	}
}

// neverAName gives every call names that are no names.
func neverAName(r *rig) {
	r.exported(1)
	r.kernel.Trace()
	for _, name := range []string{"-f", "--all", "..", ".", "", "a\nb", "a\x00b", "a b", "$(x)", "a;b", "a/b", "../a", strings.Repeat("n", 128)} {
		id := storage.VolumeID{Pool: "vg0", Name: name}
		s, e := spec(5<<20), export()
		s.ID, e.Volume = id, id.String()
		ctx, tok := r.t.Context(), token(9)
		for rpc, err := range map[string]error{
			"CreateVolume": second(r.CreateVolume(ctx, tok, s)), "DeleteVolume": r.DeleteVolume(ctx, tok, storage.LVMLV, id),
			"ExpandVolume": r.expand(9, id, 5<<20), "ExportVolume": second(r.ExportVolume(ctx, tok, storage.LVMLV, e)),
			"UnexportVolume": r.UnexportVolume(ctx, tok, storage.LVMLV, transport.NVMeTCP, id),
			"DenyInitiator":  r.DenyInitiator(ctx, tok, storage.LVMLV, transport.NVMeTCP, id, host1),
		} {
			if agentrpc.CodeOf(err).String() != "InvalidArgument" {
				r.t.Errorf("%s of volume %q = %v, want InvalidArgument", rpc, name, err)
			}
		}
	}
	for _, host := range []string{"", "..", "../../x", "nqn.2014-08.org.nvmexpress:a/b", "nqn.2014-08.org.nvmexpress:\n", "-x", "iqn.2020-01.com.example:a"} {
		for rpc, err := range map[string]error{
			"AllowInitiator": r.allow(9, host), "DenyInitiator": r.deny(9, host),
			"ExportVolume": second(r.ExportVolume(r.t.Context(), token(9), storage.LVMLV, export(host))),
		} {
			if agentrpc.CodeOf(err).String() != "InvalidArgument" {
				r.t.Errorf("%s of host %q = %v, want InvalidArgument", rpc, host, err)
			}
		}
	}
	r.untouched()
}

// N-14: two volumes of one target name never stand for each other.
func TestNever_oneNameTwoVolumes(t *testing.T) {
	s := &simulation{t: t, cfg: Config{StateDir: filepath.Join(t.TempDir(), "state"), Simulate: 1 << 30,
		File: writeConfig(t, "backends: [{lvm: {volumeGroup: vg0}}, {lvm: {volumeGroup: vg0.a}}]")}}
	s.start()
	t.Cleanup(func() { s.stop() })
	ctx := t.Context()
	_, err := s.Reconcile(ctx, true, nil)
	first, other := storage.VolumeID{Pool: "vg0", Name: "a.b"}, storage.VolumeID{Pool: "vg0.a", Name: "b"}
	for _, id := range []storage.VolumeID{first, other} {
		if err == nil {
			_, err = s.CreateVolume(ctx, token(1), storage.Spec{ID: id, Bytes: 8 << 20, Backend: storage.LVMLV,
				LVM: &storage.LVMParams{VolumeGroup: id.Pool, Mode: "linear"}})
		}
	}
	if err == nil {
		_, err = s.ExportVolume(ctx, token(2), storage.LVMLV, exportOf(first))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.effects()
	_, export := s.ExportVolume(ctx, token(2), storage.LVMLV, exportOf(other))
	allow := s.AllowInitiator(ctx, token(2), storage.LVMLV, transport.NVMeTCP, other, host1, true)
	results, err := s.Reconcile(ctx, true, []agentrpc.Item{{Token: token(2), Backend: storage.LVMLV, Export: exportOf(other)}})
	if err != nil {
		t.Fatal(err)
	}
	for call, err := range map[string]error{"ExportVolume": export, "AllowInitiator": allow, "Reconcile": results[0].Err} {
		if agentrpc.CodeOf(err).String() != "FailedPrecondition" || !strings.Contains(err.Error(), "/dev/vg0/a.b") || !strings.Contains(err.Error(), "/dev/vg0.a/b") {
			t.Errorf("%s of the other = %v, want FailedPrecondition with both devices", call, err)
		}
	}
	deny := s.DenyInitiator(ctx, token(3), storage.LVMLV, transport.NVMeTCP, other, host1)
	unexport := s.UnexportVolume(ctx, token(4), storage.LVMLV, transport.NVMeTCP, other)
	if remove := s.DeleteVolume(ctx, token(4), storage.LVMLV, other); deny != nil || unexport != nil || remove != nil {
		t.Errorf("deny, unexport and delete of the other = %v, %v, %v, want success", deny, unexport, remove)
	}
	if got := s.effects(); strings.Contains(got, "nvmet") || strings.Contains(got, "lvremove vg0/") {
		t.Errorf("calls for the other did\n%s", got)
	}
}

func itemOf(generation int64, hosts ...string) agentrpc.Item {
	return agentrpc.Item{Token: token(generation), Backend: storage.LVMLV, Export: export(hosts...), Ready: true}
}

// exported makes volume a at a generation and exports it at the next.
func (r *rig) exported(generation int64, hosts ...string) {
	r.t.Helper()
	r.exportedAs(idA, generation, hosts...)
}

func (r *rig) exportedAs(id storage.VolumeID, generation int64, hosts ...string) {
	r.t.Helper()
	s, e := spec(5<<20), export(hosts...)
	s.ID, e.Volume = id, id.String()
	r.must(second(r.CreateVolume(r.t.Context(), token(generation), s)))
	r.must(second(r.ExportVolume(r.t.Context(), token(generation+1), storage.LVMLV, e)))
}

func (r *rig) allow(generation int64, host string) error {
	return r.AllowInitiator(r.t.Context(), token(generation), storage.LVMLV, transport.NVMeTCP, idA, host, true)
}

func (r *rig) deny(generation int64, host string) error {
	return r.DenyInitiator(r.t.Context(), token(generation), storage.LVMLV, transport.NVMeTCP, idA, host)
}

// sends sends a complete request or a resync and answers what failed of it.
func (r *rig) sends(complete bool, items ...agentrpc.Item) error {
	r.t.Helper()
	results, err := r.Reconcile(context.WithoutCancel(r.t.Context()), complete, items)
	for _, result := range results {
		err = errors.Join(err, result.Err)
	}
	return err
}

// reboot loses what the kernel had, and starts the agent again.
func (r *rig) reboot() {
	r.t.Helper()
	r.must(r.stop())
	r.kernel = configfstest.New()
	r.mem.Reboot()
	r.start()
}

func (r *rig) stale(errs ...error) {
	r.t.Helper()
	for i, err := range errs {
		if !errors.Is(err, fencing.ErrStale) {
			r.t.Errorf("stale request %d = %v, want ErrStale", i+1, err)
		}
	}
}

func (r *rig) wants(err error, code string, text ...string) {
	r.t.Helper()
	if agentrpc.CodeOf(err).String() != code {
		r.t.Errorf("got %v, want %s", err, code)
		return
	}
	for _, s := range text {
		if !strings.Contains(err.Error(), s) {
			r.t.Errorf("got %v, want it to say %q", err, s)
		}
	}
}

// admits wants exactly these hosts in volume a's export, if there is one.
func (r *rig) admits(want ...string) {
	r.t.Helper()
	got, err := r.kernel.ReadDir("nvmet/subsystems/" + nqnA + "/allowed_hosts")
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil || !slices.Equal(got, want) {
		r.t.Errorf("admitted = %q, %v, want %q", got, err, want)
	}
}

// untouched wants that the kernel saw nothing since the last trace.
func (r *rig) untouched() {
	r.t.Helper()
	if trace := r.kernel.Trace(); len(trace) > 0 {
		r.t.Errorf("kernel saw %q, want nothing", trace)
	}
}

// identity is what hosts know volume a by.
func (r *rig) identity() (all string) {
	r.t.Helper()
	for _, attr := range []string{"attr_serial", "namespaces/1/device_uuid", "namespaces/1/device_nguid"} {
		value, err := r.kernel.ReadFile("nvmet/subsystems/" + nqnA + "/" + attr)
		r.must(err)
		all += string(value)
	}
	return all
}
