package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/pillar-csi/pillar/e2e/cluster"
)

// teller prints the story: numbered steps with their time, the commands and what they
// answered. Colour only on a terminal.
type teller struct {
	out    io.Writer
	colour bool
	begun  time.Time
	steps  []stepTime
}

type stepTime struct {
	title string
	begun time.Time
}

func newTeller(out *os.File) *teller {
	return &teller{out: out, colour: term.IsTerminal(int(out.Fd())), begun: time.Now()}
}

func (t *teller) paint(code, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// step begins a numbered step.
func (t *teller) step(title string) {
	t.steps = append(t.steps, stepTime{title, time.Now()})
	fmt.Fprintf(t.out, "\n%s\n", t.paint("1", fmt.Sprintf("%d. %s  [%s]", len(t.steps), title, t.since(t.begun))))
}

func (t *teller) since(from time.Time) string {
	return fmt.Sprintf("%.1f s", time.Since(from).Seconds())
}

func (t *teller) say(text string) { fmt.Fprintf(t.out, "   %s\n", text) }

func (t *teller) command(line string) { fmt.Fprintf(t.out, "   %s\n", t.paint("36", "$ "+line)) }

func (t *teller) output(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		fmt.Fprintf(t.out, "     %s\n", strings.TrimRight(line, "\n"))
	}
}

// machine shows a look at one of the machines.
func (t *teller) machine(name, script, out string) {
	fmt.Fprintf(t.out, "   %s\n", t.paint("36", name+"# "+script))
	t.output(out)
}

// run runs kubectl, shows command and answer, and returns its standard output.
func (t *teller) run(ctx context.Context, c *cluster.Cluster, args ...string) (string, error) {
	t.command("kubectl " + quoted(args))
	cmd := exec.CommandContext(ctx, c.Kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	t.output(stdout.String())
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", quoted(args), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// quiet is where the lab's own lines go.
func (t *teller) quiet() io.Writer { return &indented{t.out} }

type indented struct{ out io.Writer }

func (i *indented) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if _, err := fmt.Fprintf(i.out, "   %s\n", strings.TrimRight(line, "\n")); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// summary says what was shown and how long each step took.
func (t *teller) summary() {
	fmt.Fprintf(t.out, "\n%s\n", t.paint("1;32", "All of it was true. In "+t.since(t.begun)+":"))
	for i, s := range t.steps {
		end := time.Now()
		if i+1 < len(t.steps) {
			end = t.steps[i+1].begun
		}
		fmt.Fprintf(t.out, "   %5.1f s  %s\n", end.Sub(s.begun).Seconds(), s.title)
	}
}

func (t *teller) failed(err error) {
	fmt.Fprintf(t.out, "\n%s\n", t.paint("1;31", "This was not true: "+err.Error()))
}

// quoted shows arguments as one would type them.
func quoted(args []string) string {
	var all []string
	for _, a := range args {
		if strings.ContainsAny(a, " *{}|&>") {
			a = "'" + a + "'"
		}
		all = append(all, a)
	}
	return strings.Join(all, " ")
}
