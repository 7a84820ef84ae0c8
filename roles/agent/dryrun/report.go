package dryrun

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Report is what a dry run found. Its JSON keeps its meaning: fields are added, none is
// renamed or removed while version is 1.
type Report struct {
	Version int    `json:"version"` // 1
	Agent   string `json:"agent"`   // version of pillar
	Kernel  string `json:"kernel"`
	Config  string `json:"config"` // path of the configuration
	Ready   bool   `json:"ready"`  // nothing is missing

	Pools   []PoolFound `json:"pools"`   // in the order of the configuration, those that can be read
	Exports []string    `json:"exports"` // NQNs that pillar exports already
	Steps   []Step      `json:"steps"`   // in the order in which they would come
	Missing []Missing   `json:"missing"`
}

// PoolFound is a configured pool that is there.
type PoolFound struct {
	Name           string `json:"name"`
	Backend        string `json:"backend"` // lvm-lv, zfs-zvol
	TotalBytes     int64  `json:"totalBytes"`
	AvailableBytes int64  `json:"availableBytes"`
	Volumes        int    `json:"volumes"` // that pillar made or could have made
}

// Step is one thing that serving would do.
type Step struct {
	When string `json:"when"` // "pod start", "agent start", or "volume in POOL": an example
	Does string `json:"does"` // load, create, remove, mount, listen; of a volume create, run, write, mkdir, set, link
	What string `json:"what"`
}

// Missing is what the host lacks, and how to get it.
type Missing struct {
	Subsystem string `json:"subsystem"` // user, state, modules, or a name of the health answer
	Pool      string `json:"pool,omitempty"`
	Problem   string `json:"problem"`
	Fix       string `json:"fix"`
}

// StepOf is an effect as a step.
func StepOf(when string, e Effect) Step {
	if e.Program != nil {
		return Step{when, "run", quoted(e.Program)}
	}
	does, what, _ := strings.Cut(e.Write, " ")
	return Step{when, does, what}
}

// Lack notes that something is missing.
func (r *Report) Lack(m Missing) {
	m.Problem = strings.Join(strings.Fields(m.Problem), " ") // tools say more than a line
	r.Missing = append(r.Missing, m)
}

// Step notes one thing that serving would do.
func (r *Report) Step(when, does, what string) { r.Steps = append(r.Steps, Step{when, does, what}) }

// JSON writes the report as one object. Lists are never null.
func (r Report) JSON(w io.Writer) error {
	if r.Pools == nil {
		r.Pools = []PoolFound{}
	}
	if r.Exports == nil {
		r.Exports = []string{}
	}
	if r.Steps == nil {
		r.Steps = []Step{}
	}
	if r.Missing == nil {
		r.Missing = []Missing{}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// Text writes the report for a person.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "dry run of pillar agent %s on Linux %s with %s: nothing was changed\n", r.Agent, r.Kernel, r.Config)
	b.WriteString("\nThere is already\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range r.Pools {
		fmt.Fprintf(table, "  pool %s\t%s\t%s, %s free\t%d volumes\n", p.Name, p.Backend, gib(p.TotalBytes), gib(p.AvailableBytes), p.Volumes)
	}
	table.Flush()
	for _, nqn := range r.Exports {
		fmt.Fprintf(&b, "  export %s\n", nqn)
	}
	if len(r.Pools)+len(r.Exports) == 0 {
		b.WriteString("  nothing\n")
	}
	when := ""
	for _, s := range r.Steps {
		if s.When != when {
			when = s.When
			fmt.Fprintf(&b, "\nServing would, %s\n", heading(when))
		}
		fmt.Fprintf(&b, "  %-7s%s\n", s.Does, s.What)
	}
	for i, m := range r.Missing {
		if i == 0 {
			b.WriteString("\nMissing\n")
		}
		fmt.Fprintf(&b, "  %s: %s\n      fix: %s\n", strings.TrimSpace(m.Subsystem+" "+m.Pool), m.Problem, m.Fix)
	}
	b.WriteString("\n" + r.verdict() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func heading(when string) string {
	if strings.HasPrefix(when, "volume") {
		return "for a " + when + " of 1 GiB, exported and given to one node"
	}
	return "at " + when
}

func (r Report) verdict() string {
	switch len(r.Missing) {
	case 0:
		return "This host is ready."
	case 1:
		return "This host is not ready: 1 thing is missing."
	}
	return fmt.Sprintf("This host is not ready: %d things are missing.", len(r.Missing))
}

func gib(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
