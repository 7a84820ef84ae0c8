package nvmet

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
	"golang.org/x/sys/unix"
)

// rig is a configfs and the target on it.
type rig struct {
	t *testing.T
	k *configfstest.Kernel
	*Target
}

// rules are what block.md asks of the target, by what they say.
var rules = map[string]func(*rig){
	"B-22 B-286 ours are listed as the kernel has them": func(r *rig) {
		r.foreign()
		r.do(exporting(), exporting(second, open, disabled))
		got, err := r.List(r.t.Context())
		want := []transport.Target{
			{ID: nqn, Ref: nqn, Portal: portal, Enabled: true, ACL: true, Initiators: []string{host1}},
			{ID: nqn2, Ref: nqn2, Portal: portal},
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			r.t.Errorf("List: %v (-want +got):\n%s", err, diff)
		}
	},
	"B-249 P-13 a host that stays finds the volume in its port before the link of all": func(r *rig) {
		r.do(exporting(toBoth))
		must(r.t, r.Prepare(r.t.Context(), export(nil), free))
		got, err := r.List(r.t.Context())
		want := []transport.Target{{ID: nqn, Ref: nqn, Portal: portal, Enabled: true, ACL: true, Initiators: []string{host1}}}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			r.t.Errorf("List: %v (-want +got):\n%s", err, diff)
		}
	},
	"B-23 N-14 another device under the name is refused or left alone": func(r *rig) {
		r.do(exporting())
		r.k.Trace()
		other := func(e *transport.Export) { e.DevicePath = device2 }
		for call, err := range map[string]error{
			"Export": exports(other)(r.t, r.Target), "Allow": r.Allow(r.t.Context(), volume, device2, host2),
		} {
			r.refused(call, err, transport.ErrPrecondition, device, device2)
		}
		must(r.t, r.Deny(r.t.Context(), volume, device2, host1, free))
		must(r.t, r.Resize(r.t.Context(), volume, device2))
		must(r.t, r.Unexport(r.t.Context(), volume, device2))
		r.wrote()
	},
	"B-23 N-8 a device that cannot be looked at is not taken for another or the same": func(r *rig) {
		r.do(exporting())
		r.k.Trace()
		const gone = "/dev/absent"
		for call, err := range map[string]error{
			"Export": exports(func(e *transport.Export) { e.DevicePath = gone })(r.t, r.Target),
			"Allow":  r.Allow(r.t.Context(), volume, gone, host2), "Deny": r.Deny(r.t.Context(), volume, gone, host1, free),
			"Resize": r.Resize(r.t.Context(), volume, gone), "Unexport": r.Unexport(r.t.Context(), volume, gone),
		} {
			r.refused(call, err, os.ErrNotExist, "compare backing devices", gone)
		}
		r.wrote()
	},
	"B-28 N-11 a live identity is kept, by every call and every rebuild": func(r *rig) {
		calls := map[string]func(*testing.T, *Target){
			"export": exporting(toBoth), "allow": allowing(host2), "deny": denying(host1),
			"host replaced": exporting(toOther), "disable and enable": inTurn(exporting(disabled), exporting()),
		}
		for name, call := range calls {
			r.do(exporting(), disguise, call)
			r.identity(name, disguised)
			must(r.t, r.k.Clear()) // the machine rebooted
			r.do(exporting())
			r.identity("reboot after "+name, disguised)
			r.do(unexporting, exporting()) // B-29
			r.identity("unexport after "+name, derive(nqn))
		}
	},
	"B-29 a corrupt pinned identity is not replaced": func(r *rig) {
		r.do(exporting())
		r.k.Trace()
		record := filepath.Join(r.cfg.IdentityDir, durable.Name(volume)+".json")
		must(r.t, os.WriteFile(record, []byte("{"), 0o600))
		for call, err := range map[string]error{
			"Export": exports()(r.t, r.Target), "Deny": r.Deny(r.t.Context(), volume, device, host1, free),
		} {
			r.refused(call, err, nil, record)
		}
		r.wrote()
		r.do(unexporting)
		if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
			r.t.Errorf("record after unexport: %v, want it gone", err)
		}
	},
	"B-239 a path that leads to the same device is equal": func(r *rig) {
		r.do(exporting())
		r.k.Trace()
		r.do(exporting(func(e *transport.Export) { e.DevicePath = alias }), exporting(disabled))
		r.wrote("set    .../namespaces/1/enable 0")
	},
	"B-240 a bare subsystem is completed": func(r *rig) {
		must(r.t, r.k.Mkdir(subDir))
		r.k.Trace()
		r.do(exporting())
		if trace := r.k.Trace(); slices.ContainsFunc(trace, func(line string) bool { return strings.HasPrefix(line, "rmdir") }) {
			r.t.Errorf("Export over a leftover removed:\n%s", shorten(trace))
		}
		r.identity("export", derive(nqn))
	},
	"B-243 N-29 what is not the volume's is left alone": func(r *rig) {
		r.do(exporting(second, open), exporting())
		r.foreign()
		before := r.others()
		r.do(exporting(toBoth), allowing(host1), denying(host1), exporting(disabled), exporting(open), resizing, unexporting, exporting())
		if diff := cmp.Diff(before, r.others()); diff != "" {
			r.t.Errorf("others (-before +after):\n%s", diff)
		}
	},
	"B-249 N-13 an ACL closes first and opens last": func(r *rig) {
		r.do(exporting(open))
		closing := r.whileOpen(exporting(toBoth))
		if want := []string{"set " + subDir + "/attr_allow_any_host 0"}; !slices.Equal(closing, want) {
			r.t.Errorf("anyone was admitted while the kernel saw %q, want %q", closing, want)
		}
		if opening := r.whileOpen(exporting(open)); len(opening) > 0 {
			r.t.Errorf("anyone was admitted before %q", opening)
		}
	},
	"B-255 D-29 a disabled namespace stays disabled over a revoke": func(r *rig) {
		r.do(exporting(disabled, toBoth), denying(host1))
		r.shows(r.subsystemDir(nqn).Sub("namespaces", "1"), "enable", "0")
	},
	"B-426 D-29 a revoke does not enable under somebody else's claim": func(r *rig) {
		r.do(exporting(toBoth))
		held := func(string) (func() error, error) { return nil, syscall.EBUSY }
		r.refused("Deny", r.Deny(r.t.Context(), volume, device, host1, held), syscall.EBUSY, device)
		if _, atAll := reachable(r.t, r.k); atAll {
			r.t.Error("the volume is reachable again")
		}
		r.do(denying(host1), exporting(toOther))
	},
	"B-266 host and port directories stay": func(r *rig) {
		r.do(exporting(), unexporting)
		for dir, want := range map[string]int{"hosts": 1, "ports": 1, "subsystems": 0} {
			if names, err := r.nvmet.Sub(dir).List(); len(names) != want || err != nil {
				r.t.Errorf("%s = %q, %v, want %d", dir, names, err, want)
			}
		}
	},
	"B-268 N-16 whoever has the device is named": func(r *rig) {
		r.foreign()
		r.do(exporting(second, disabled), exporting(func(e *transport.Export) { e.DevicePath, e.Disabled = "/dev/absent", true }))
		n, err := r.number(device2)
		must(r.t, err)
		got, err := r.Users(r.t.Context(), unix.Major(n), unix.Minor(n))
		if diff := cmp.Diff([]string{foreignNQN, nqn2}, got); diff != "" || err != nil {
			r.t.Errorf("Users: %v (-want +got):\n%s", err, diff)
		}
	},
}

// disguised is an identity that an older version, or a hand, has given the volume.
var disguised = Identity{UUID: "5a0e7b52-18b7-4c0e-9d52-6c1f7c9a1b11", NGUID: "01020304-0506-0708-090a-0b0c0d0e0f10", Serial: "oldserial"}

func disguise(t *testing.T, tgt *Target) {
	t.Helper()
	dir := tgt.subsystemDir(nqn)
	for _, a := range []struct{ in, attr, value string }{
		{"namespaces/1", "enable", "0"}, {"namespaces/1", "device_uuid", disguised.UUID},
		{"namespaces/1", "device_nguid", disguised.NGUID}, {".", "attr_serial", disguised.Serial}, {"namespaces/1", "enable", "1"},
	} {
		must(t, dir.Sub(a.in).Set(t.Context(), a.attr, a.value))
	}
}

const foreignNQN = "nqn.2020-01.com.example:foreign"

// foreign has somebody else export the second device, at the port if there is one.
func (r *rig) foreign() {
	r.t.Helper()
	sub := r.nvmet.Sub("subsystems", foreignNQN)
	ns := sub.Sub("namespaces", "7")
	must(r.t, errors.Join(sub.Mkdir(r.t.Context()), ns.Mkdir(r.t.Context())))
	must(r.t, ns.Set(r.t.Context(), "device_path", device2))
	must(r.t, ns.Set(r.t.Context(), "enable", "1"))
	must(r.t, sub.Set(r.t.Context(), "attr_allow_any_host", "1"))
	ports, err := r.nvmet.Sub("ports").List()
	must(r.t, err)
	for _, port := range ports {
		must(r.t, r.nvmet.Sub("ports", port, "subsystems").Link(r.t.Context(), sub))
	}
}

// others is what of nvmet is not the first volume's.
func (r *rig) others() map[string]string {
	all := content(r.t, r.k, "nvmet")
	maps.DeleteFunc(all, func(name, _ string) bool {
		return strings.Contains(name, nqn) || strings.HasPrefix(name, "nvmet/hosts/")
	})
	return all
}

func (r *rig) do(steps ...func(*testing.T, *Target)) {
	r.t.Helper()
	inTurn(steps...)(r.t, r.Target)
}

// whileOpen answers the effects of a step that came while anyone was admitted.
func (r *rig) whileOpen(step func(*testing.T, *Target)) (lines []string) {
	r.t.Helper()
	r.k.Trace()
	r.k.OnEffect = func(line string) error {
		if anyone, _ := reachable(r.t, r.k); anyone {
			lines = append(lines, line)
		}
		return nil
	}
	r.do(step)
	r.k.OnEffect = nil
	done := r.k.Trace() // without what was there already
	return slices.DeleteFunc(lines, func(line string) bool { return !slices.Contains(done, line) })
}

// refused wants an error of a kind that says all of it.
func (r *rig) refused(call string, err, want error, text ...string) {
	r.t.Helper()
	if err == nil || want != nil && !errors.Is(err, want) {
		r.t.Errorf("%s = %v, want %v", call, err, want)
		return
	}
	for _, s := range text {
		if !strings.Contains(err.Error(), s) {
			r.t.Errorf("%s = %v, want it to say %q", call, err, s)
		}
	}
}

// wrote wants exactly these effects since the last trace.
func (r *rig) wrote(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.TrimSpace(shorten(r.k.Trace()))); diff != "" {
		r.t.Errorf("effects (-want +got):\n%s", diff)
	}
}

func (r *rig) identity(after string, want Identity) {
	r.t.Helper()
	s, err := r.subsystem(nqn)
	if err != nil || s == nil || s.id != want {
		r.t.Errorf("after %s the subsystem is %+v, %v, want identity %+v", after, s, err, want)
	}
}

func (r *rig) shows(d configfs.Dir, attr, want string) {
	r.t.Helper()
	if got, err := d.Read(attr); err != nil || got != want {
		r.t.Errorf("%s/%s = %q, %v, want %q", d.Name(), attr, got, err, want)
	}
}

func TestTarget_rules(t *testing.T) { testRules(t, inMemory, rules, portRules) }

func TestKernel_rules(t *testing.T) { testRules(t, onKernel, rules, portRules) }

func testRules(t *testing.T, system fixture, tables ...map[string]func(*rig)) {
	for _, table := range tables {
		for name, rule := range table {
			t.Run(name, func(t *testing.T) {
				k, tgt := system(t)
				rule(&rig{t: t, k: k, Target: tgt})
			})
		}
	}
}
