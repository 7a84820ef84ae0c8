// Package roles holds what pillar's processes do, one package per role. Its own tests hold
// the whole repository to its rules: who may import whom (imports_test.go), how large a
// file or function may be and what must be documented (shape_test.go).
package roles

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pillar-csi/pillar"

// edge is one import. Packages of this module are relative to it ("." is main), all
// others are full paths.
type edge struct {
	from, to string
	test     bool // only a _test.go file imports it
}

func (e edge) String() string { return e.from + " imports " + e.to }

// layers says which parts of the tree a part may import, itself aside.
var layers = map[string][]string{
	"main":      {"roles"},
	"roles":     {"storage", "transport", "fencing", "crds"},
	"storage":   {},
	"transport": {"storage"}, // storage/host alone, see rules
	"fencing":   {"storage"}, // likewise
	"crds":      {},
	"deploy":    {"crds"},
	"e2e":       {"roles", "storage", "transport", "fencing", "crds", "deploy"},
}

// shared are the packages that all roles may import.
var shared = []string{"agentpb", "agentrpc", "csiserve", "telemetry"}

// rules name what no import may do. Each answers whether the edge breaks it.
var rules = map[string]func(e edge) bool{
	"never upward, never sideways": func(e edge) bool {
		from, to := part(e.from), part(e.to)
		return own(e.to) && from != to && !slices.Contains(layers[from], to)
	},
	"storage/host is the bottom: standard library and x/sys only": func(e edge) bool {
		return in(e.from, "storage/host") && !e.test && !std(e.to) && !in(e.to, "storage/host") && !in(e.to, "golang.org/x/sys")
	},
	"transport and fencing see of storage only storage/host": func(e edge) bool {
		return (in(e.from, "transport") || in(e.from, "fencing")) && in(e.to, "storage") && !in(e.to, "storage/host")
	},
	"roles share only agentpb, agentrpc, csiserve and telemetry": func(e edge) bool {
		from, to := role(e.from), role(e.to)
		return from != "" && to != "" && from != to && !slices.Contains(shared, to)
	},
	"only roles/controller knows crds": func(e edge) bool {
		return in(e.to, "crds") && product(e) && !in(e.from, "crds") && !in(e.from, "roles/controller")
	},
	"only roles/controller imports client-go and controller-runtime (node: client-go for CSINode)": func(e edge) bool {
		client := in(e.to, "k8s.io/client-go") && !in(e.from, "roles/node")
		return product(e) && (client || in(e.to, "sigs.k8s.io/controller-runtime")) &&
			!in(e.from, "roles/controller") && !in(e.from, "crds")
	},
	"only csiserve and agentrpc know grpc/status and grpc/codes": func(e edge) bool {
		codes := in(e.to, "google.golang.org/grpc/status") || in(e.to, "google.golang.org/grpc/codes")
		return codes && product(e) && !in(e.from, "roles/csiserve") && !in(e.from, "roles/agentrpc") && !in(e.from, "roles/agentpb")
	},
	"only storage/host starts programs": func(e edge) bool {
		return e.to == "os/exec" && product(e) && !in(e.from, "storage/host") && path.Base(e.from) != "generate"
	},
	"test packages are for _test.go files": func(e edge) bool {
		return own(e.to) && testPackage(e.to) && product(e) && !testPackage(e.from)
	},
	"a module needs a reason in this test": func(e edge) bool {
		return !std(e.to) && !own(e.to) && reason(e) == ""
	},
}

// modules are the modules the product may import, and why.
var modules = map[string]string{
	"github.com/container-storage-interface/spec": "the CSI API",
	"github.com/go-logr/logr":                     "the type of controller-runtime's logger",
	"github.com/go-logr/zapr":                     "controller-runtime's log lines in our log",
	"github.com/google/uuid":                      "parse and print UUIDs",
	"github.com/moby/sys/mountinfo":               "parse the mount table",
	"github.com/prometheus/client_golang":         "metrics",
	"github.com/spf13/cobra":                      "commands and flags",
	"go.uber.org/zap":                             "structured logs",
	"go.yaml.in/yaml/v3":                          "documents of users: no anchors, and 'on' stays text",
	"golang.org/x/sync":                           "wait for goroutines that can fail",
	"golang.org/x/sys":                            "system calls the standard library lacks",
	"google.golang.org/genproto/googleapis/rpc":   "ErrorInfo, the kind of failure on the wire",
	"google.golang.org/grpc":                      "CSI and the agent's API",
	"google.golang.org/protobuf":                  "messages of both",
	"k8s.io/api":                                  "Kubernetes kinds",
	"k8s.io/apimachinery":                         "Kubernetes kinds",
	"k8s.io/client-go":                            "the Kubernetes API",
	"sigs.k8s.io/controller-runtime":              "watches and reconcilers",
	"github.com/cilium/ebpf":                      "keep hosts out of a port while it is opened (sk_lookup)",
	"sigs.k8s.io/json":                            "strict decoding that names the unknown key",
	"sigs.k8s.io/yaml":                            "the agent's configuration, with unknown keys refused",
}

// testModules are those only tests, e2e and generators may import besides.
var testModules = map[string]string{
	"github.com/bufbuild/protocompile":   "compile agent.proto without protoc",
	"github.com/google/go-cmp":           "differences a reader understands",
	"github.com/klauspost/compress":      "read kernel modules and packages",
	"github.com/kubernetes-csi/csi-test": "csi-sanity",
	"github.com/onsi/ginkgo":             "what csi-sanity is written with",
	"github.com/onsi/gomega":             "what csi-sanity is written with",
	"github.com/go-logr":                 "client-go's logger in a lab",
	"github.com/vishvananda/netlink":     "the lab's bridge and taps",
	"golang.org/x/term":                  "the lab's shell; colours only on a terminal",
	"k8s.io/kubelet":                     "plugin registration and kubelet configuration in the lab",
	"sigs.k8s.io/kustomize":              "render deploy/kustomize",
}

func TestImports(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go list")
	}
	for _, e := range edges(t) {
		for rule, broken := range rules {
			if broken(e) {
				t.Errorf("%s: %s", e, rule)
			}
		}
	}
}

// edges lists every import of the module with `go list`.
func edges(t *testing.T) (all []edge) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("parse go list: %v", err)
		}
		for _, to := range p.Imports {
			all = append(all, edge{from: relative(p.ImportPath), to: relative(to)})
		}
		for _, to := range slices.Concat(p.TestImports, p.XTestImports) {
			all = append(all, edge{from: relative(p.ImportPath), to: relative(to), test: true})
		}
	}
}

// relative makes a package of this module relative to it.
func relative(p string) string {
	if p == module {
		return "."
	}
	return strings.TrimPrefix(p, module+"/")
}

// part is the top folder of a package of this module.
func part(p string) string {
	if p == "." {
		return "main"
	}
	top, _, _ := strings.Cut(p, "/")
	return top
}

// own is true for packages of this module.
func own(p string) bool { _, ok := layers[part(p)]; return ok }

// std is true for the standard library: its first element has no dot.
func std(p string) bool { return !own(p) && !strings.Contains(part(p), ".") }

// in is true for dir and everything below it.
func in(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// role is the package below roles that p belongs to.
func role(p string) string {
	rest, ok := strings.CutPrefix(p, "roles/")
	if !ok {
		return ""
	}
	return part(rest)
}

// product is true for what ends in the binary: no tests, no lab.
func product(e edge) bool { return !e.test && !in(e.from, "e2e") && !in(e.from, "deploy") }

// testPackage is true for packages of fakes and conformance suites.
func testPackage(p string) bool { return strings.HasSuffix(path.Base(p), "test") }

// reason finds why the module of an import is allowed.
func reason(e edge) string {
	for m, why := range modules {
		if in(e.to, m) {
			return why
		}
	}
	if product(e) && path.Base(e.from) != "generate" && !testPackage(e.from) {
		return ""
	}
	for m, why := range testModules {
		if in(e.to, m) {
			return why
		}
	}
	return ""
}

// TestRules shows that each rule catches what it names and lets its neighbour pass.
func TestRules(t *testing.T) {
	tests := map[string]struct{ bad, good edge }{
		"never upward, never sideways": {
			bad: edge{from: "storage/lvm", to: "roles/agent"}, good: edge{from: "roles/agent", to: "storage/lvm"}},
		"storage/host is the bottom: standard library and x/sys only": {
			bad: edge{from: "storage/host/durable", to: "go.uber.org/zap"}, good: edge{from: "storage/host/durable", to: "golang.org/x/sys/unix"}},
		"transport and fencing see of storage only storage/host": {
			bad: edge{from: "transport/nvmet", to: "storage/lvm"}, good: edge{from: "transport/nvmet", to: "storage/host"}},
		"roles share only agentpb, agentrpc, csiserve and telemetry": {
			bad: edge{from: "roles/node", to: "roles/agent/exports"}, good: edge{from: "roles/node", to: "roles/csiserve"}},
		"only roles/controller knows crds": {
			bad: edge{from: "roles/agent", to: "crds/v1alpha1"}, good: edge{from: "roles/controller/ledger", to: "crds/v1alpha1"}},
		"only roles/controller imports client-go and controller-runtime (node: client-go for CSINode)": {
			bad: edge{from: "roles/agent", to: "k8s.io/client-go/kubernetes"}, good: edge{from: "roles/node", to: "k8s.io/client-go/kubernetes"}},
		"only csiserve and agentrpc know grpc/status and grpc/codes": {
			bad: edge{from: "roles/node", to: "google.golang.org/grpc/codes"}, good: edge{from: "roles/node", to: "google.golang.org/grpc/codes", test: true}},
		"only storage/host starts programs": {
			bad: edge{from: "storage/lvm", to: "os/exec"}, good: edge{from: "storage/host", to: "os/exec"}},
		"test packages are for _test.go files": {
			bad: edge{from: "storage/lvm", to: "storage/host/hosttest"}, good: edge{from: "storage/lvm", to: "storage/host/hosttest", test: true}},
		"a module needs a reason in this test": {
			bad: edge{from: "storage/lvm", to: "github.com/google/go-cmp/cmp"}, good: edge{from: "storage/lvm", to: "github.com/google/go-cmp/cmp", test: true}},
	}
	for name, broken := range rules {
		test, ok := tests[name]
		if !ok {
			t.Errorf("rule %q has no case", name)
			continue
		}
		if !broken(test.bad) || broken(test.good) {
			t.Errorf("rule %q: bad case %v, good case %v, want true, false", name, broken(test.bad), broken(test.good))
		}
	}
}
