package reconcile

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
)

// connect asks the agent how it is, what it offers, and whether its exports serve.
func (r *Agents) connect(ctx context.Context, pa *v1alpha1.PillarAgent, s status) {
	asked := time.Now()
	object := fmt.Sprint(pa.UID, pa.Generation, pa.Status.ResolvedAddress)
	client, health := r.health(ctx, pa, s)
	if client == nil || !isTrue(pa.Status.Conditions, v1alpha1.AgentConnected) || !r.offers(ctx, pa, s, client) {
		s.unknown(v1alpha1.ExportsReady, v1alpha1.ReasonAgentNotConnected, "the agent's state cannot be read")
		r.exports.learn(ctx, pa.Name, standing{why: "agent " + pa.Name + " is not connected", asked: asked, object: object})
		return
	}
	pa.Status.AgentVersion = health.Version
	failed := r.exports.learn(ctx, pa.Name, standing{client: client, gated: health.Gated, asked: asked, object: object})
	switch {
	case !health.Gated:
		s.yes(v1alpha1.ExportsReady, v1alpha1.ReasonExportsServing, "the agent serves its exports")
	case failed != "":
		s.no(v1alpha1.ExportsReady, v1alpha1.ReasonExportRestoreFailed, failed+"; retried")
	default:
		s.no(v1alpha1.ExportsReady, v1alpha1.ReasonExportRestorePending, "the agent started and has not applied the complete export list yet")
	}
}

// offers reads what the agent offers; an agent that does not say is not connected.
func (r *Agents) offers(ctx context.Context, pa *v1alpha1.PillarAgent, s status, client *agentrpc.Client) bool {
	caps, err := client.Capabilities(ctx)
	if err != nil {
		s.no(v1alpha1.AgentConnected, v1alpha1.ReasonHealthCheckFailed, r.unreached(pa, "read capabilities: "+err.Error()))
		return false
	}
	offer(pa, caps)
	return true
}

// health sets AgentConnected. A nil client means that nobody was asked.
func (r *Agents) health(ctx context.Context, pa *v1alpha1.PillarAgent, s status) (*agentrpc.Client, agentrpc.Health) {
	if pa.Status.ResolvedAddress == "" {
		if pa.Spec.NodeRef != nil && !isTrue(pa.Status.Conditions, v1alpha1.NodeExists) {
			s.no(v1alpha1.AgentConnected, v1alpha1.ReasonAddressNotResolved, "node "+pa.Spec.NodeRef.Name+" does not exist")
		}
		r.pool.Forget(pa.Name)
		return nil, agentrpc.Health{}
	}
	client, err := r.pool.Client(pa)
	if err != nil {
		s.no(v1alpha1.AgentConnected, v1alpha1.ReasonHealthCheckFailed, err.Error())
		return nil, agentrpc.Health{}
	}
	r.pool.Watch(pa.Name, client, r.reconnected)
	health, err := client.Health(ctx)
	switch {
	case err != nil:
		s.no(v1alpha1.AgentConnected, v1alpha1.ReasonHealthCheckFailed, r.unreached(pa, err.Error()))
	case !health.Serving:
		s.no(v1alpha1.AgentConnected, v1alpha1.ReasonAgentUnhealthy, "the agent says it is not serving: it starts, stops, or was drained; restart it if this lasts")
	case degraded(health) != "":
		s.yes(v1alpha1.AgentConnected, v1alpha1.ReasonAgentDegraded, degraded(health))
	default:
		s.yes(v1alpha1.AgentConnected, v1alpha1.ReasonDialed, "in plaintext at "+pa.Status.ResolvedAddress)
	}
	return client, health
}

// unreached says what to look at where an agent does not answer (deploy.md 13).
func (r *Agents) unreached(pa *v1alpha1.PillarAgent, why string) string {
	where := "the agent runs at " + pa.Status.ResolvedAddress
	if ref := pa.Spec.NodeRef; ref != nil {
		where = fmt.Sprintf("the agent's pod runs (kubectl -n %s get pods --field-selector spec.nodeName=%s)", r.namespace, ref.Name)
	}
	return fmt.Sprintf("%s; see whether %s and a firewall lets TCP %s through", why, where, pa.Status.ResolvedAddress)
}

// between parts the troubles in the message of AgentConnected. None of them holds it itself,
// so that a store finds its own (agentSays).
const between = " | "

// degraded names the subsystems that do not work, or is empty.
func degraded(h agentrpc.Health) string {
	var parts []string
	for _, sub := range h.Subsystems {
		if !sub.Healthy {
			parts = append(parts, strings.ReplaceAll(subsystem(sub.Name, sub.Pool)+sub.Message, between, " "))
		}
	}
	return strings.Join(parts, between)
}

// subsystem is how the trouble of one begins: "zfs: " or "pool tank: ".
func subsystem(name, pool string) string {
	return strings.TrimSpace(name+" "+pool) + ": "
}

// agentSays is what an agent that works in part says about the first of the subsystems that
// it complains about.
func agentSays(agent *v1alpha1.PillarAgent, subsystems ...string) string {
	c := meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.AgentConnected)
	if c == nil || c.Reason != v1alpha1.ReasonAgentDegraded {
		return ""
	}
	parts := strings.Split(c.Message, between)
	for _, begin := range subsystems {
		for _, part := range parts {
			if strings.HasPrefix(part, begin) {
				return "; the agent says: " + part
			}
		}
	}
	return ""
}

// offer copies what the agent can serve now.
func offer(pa *v1alpha1.PillarAgent, caps agentrpc.Capabilities) {
	c := &v1alpha1.AgentCapabilities{}
	for _, b := range caps.Backends {
		if token.MatchString(string(b)) {
			c.Backends = append(c.Backends, string(b))
		}
	}
	for _, p := range caps.Protocols {
		if token.MatchString(string(p)) {
			c.Protocols = append(c.Protocols, string(p))
		}
	}
	pa.Status.Capabilities = c
	pa.Status.DiscoveredPools = nil
	for _, p := range caps.Pools {
		if token.MatchString(p.Type) && p.Name != "" && !strings.ContainsFunc(p.Name, unicode.IsControl) {
			pa.Status.DiscoveredPools = append(pa.Status.DiscoveredPools, discovered(p))
		}
	}
}

// token is what a backend, protocol or type of pool is called, one of this version or of a
// later one. What an agent says otherwise is left out.
var token = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

func discovered(p storage.Pool) v1alpha1.DiscoveredPool {
	d := v1alpha1.DiscoveredPool{Name: p.Name, Type: p.Type, ThinPool: p.ThinPool, ParentDataset: p.Parent}
	if p.Type == "zfs" {
		d.VolumeType = v1alpha1.ZFSVolumeTypeZvol
	}
	d.Total = resource.NewQuantity(max(0, p.Capacity.Total), resource.BinarySI)
	d.Available = resource.NewQuantity(max(0, p.Capacity.Available), resource.BinarySI)
	return d
}
