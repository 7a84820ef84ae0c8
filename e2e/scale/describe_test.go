//go:build lab

package scale

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/e2e/cluster"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

var update = flag.Bool("update", false, "write what kubectl says into docs/troubleshooting.md")

// broken are one object of each kind a user may get wrong, and the words in its description
// that the test waits for.
func broken() []struct {
	object client.Object
	says   string
} {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	class := AgentName(0)
	return []struct {
		object client.Object
		says   string
	}{
		{&v1alpha1.PillarAgent{ObjectMeta: named("nas"), Spec: v1alpha1.PillarAgentSpec{
			NodeRef: &v1alpha1.NodeRef{Name: "storag-1"}}}, v1alpha1.ReasonNodeNotFound},
		{&v1alpha1.PillarStore{ObjectMeta: named("tank"), Spec: v1alpha1.PillarStoreSpec{
			AgentRef: AgentName(0), Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "tank"}}}}, v1alpha1.ReasonPoolNotFound},
		{&v1alpha1.PillarProtocol{ObjectMeta: named("iscsi-chap"), Spec: v1alpha1.PillarProtocolSpec{
			Protocol: v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{ACL: true, Auth: &v1alpha1.ISCSIAuth{
				Method: v1alpha1.AuthCHAP, SecretRef: &v1alpha1.SecretRef{Name: "chap"}}}}}}, v1alpha1.ReasonAuthSecretInvalid},
		{&v1alpha1.PillarStorageClass{ObjectMeta: named("fast"), Spec: v1alpha1.PillarStorageClassSpec{
			StoreRef: "tank", ProtocolRef: "nvme"}}, v1alpha1.ReasonPoolNotReady},
		{&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", Annotations: map[string]string{
				v1alpha1.ProtocolKey: "nvmeofTcp:\n  acl: false\n",
			}},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class,
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}}, "is structural and cannot be set per volume"},
	}
}

// TestWorld_describe holds docs/troubleshooting.md to what `kubectl describe` really says of
// a broken agent, store, protocol, class and claim.
func TestWorld_describe(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w, err := Start(ctx, logs(t), Config{Agents: 1, Sidecars: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	repo, err := artifacts.ModuleRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(repo, "docs/troubleshooting.md")
	doc, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	for _, b := range broken() {
		if err := w.API.Create(ctx, b.object); err != nil {
			t.Fatal(err)
		}
		gvk, err := w.API.GroupVersionKindFor(b.object)
		if err != nil {
			t.Fatal(err)
		}
		command := fmt.Sprintf("kubectl describe %s %s", strings.ToLower(gvk.Kind), b.object.GetName())
		said, err := w.describe(ctx, command, b.says)
		if err != nil {
			t.Fatal(err)
		}
		was, now, err := fenced(text, command, said)
		if err != nil {
			t.Fatal(err)
		}
		if text = now; !*update {
			if diff := cmp.Diff(was, said); diff != "" {
				t.Errorf("%s: docs/troubleshooting.md (-) and kubectl (+) differ; go test -update writes it:\n%s", command, diff)
			}
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// describe repeats the command until its output holds the words, also as an event, and
// answers it without what differs each time.
func (w *World) describe(ctx context.Context, command, words string) (string, error) {
	programs, err := cluster.Programs(ctx)
	if err != nil {
		return "", err
	}
	argv := strings.Fields(command)
	ask := time.NewTicker(500 * time.Millisecond)
	defer ask.Stop()
	for {
		cmd := exec.CommandContext(ctx, filepath.Join(programs, argv[0]), argv[1:]...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", command, err, out)
		}
		text := steady(string(out))
		if _, events, _ := strings.Cut(text, "\nEvents:"); strings.Contains(events, words) {
			return text, nil
		}
		select {
		case <-ask.C:
		case <-ctx.Done():
			return "", fmt.Errorf("%s: %w; the last answer has no event with %q:\n%s", command, ctx.Err(), words, text)
		}
	}
}

// changing is what a description shows differently each time.
var changing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2026-01-01T00:00:00Z"},
	{regexp.MustCompile(`(?m)^(  Resource Version: +)\d+$`), "${1}1000"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "00000000-0000-0000-0000-000000000000"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "192.0.2.11:9500"},
	{regexp.MustCompile(`csi\.bhyoo\.com_\S+`), "csi.bhyoo.com_controller-0"},
	{regexp.MustCompile(`pillar-csi-controller-\S+`), "pillar-csi-controller-0"},
}

// steady replaces what changes and shows each event once, without its age.
func steady(text string) string {
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.with)
	}
	head, table, found := strings.Cut(text, "\nEvents:\n")
	if !found {
		return strings.TrimRight(text, "\n ") + "\n"
	}
	columns := regexp.MustCompile(`\s{2,}`)
	var events []string
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		c := columns.Split(strings.TrimSpace(line), 5)
		if len(c) < 5 {
			continue
		}
		if event := fmt.Sprintf("  %s  %s  1s  %s  %s", c[0], c[1], c[3], c[4]); !slices.Contains(events, event) {
			events = append(events, event)
		}
	}
	slices.Sort(events)
	return head + "\nEvents:\n  Type  Reason  Age  From  Message\n" + strings.Join(events, "\n") + "\n"
}

// fenced answers what the page shows below a command, and the page with text there.
func fenced(page, command, text string) (was, now string, err error) {
	start := "```console\n$ " + command + "\n"
	before, rest, found := strings.Cut(page, start)
	was, after, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		return "", "", fmt.Errorf("docs/troubleshooting.md has no console block that begins with %q", "$ "+command)
	}
	return was, before + start + text + "```\n" + after, nil
}
