// Command bench prints one tab-separated line per benchmark, `name value unit goal`. Every
// value is a ratio against a baseline measured beside it in the same run, a count or a
// size in memory, so that it means the same on any machine. It runs inside the lab: it
// boots a guest and starts itself there with -inside; the controller runs beside it.
//
//	bench [steady] [create] [expand] [restore]   some of it; without a name all
//
// $PILLAR_LAB_KERNEL names the guest's kernel: uml has one CPU, qemu is a stock one with two.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab"
)

// row is one benchmark: the work, and the same done as bluntly as possible. They are measured
// in turn, after one round that is not counted; the median of the ratios of pairs is told, as
// a machine's speed drifts.
type row struct {
	name     string
	goal     float64 // the most the work may cost of the baseline
	rounds   int
	marks    int // how often the work makes a fencing mark durable: told apart, and not compared
	work     func(context.Context) (time.Duration, error)
	baseline func(context.Context) (time.Duration, error)
	checked  func(context.Context) (time.Duration, error) // the baseline with what no writer may leave out; nil: it has all
	programs func() (runs int, took time.Duration)        // of the work; a time is told apart, and not compared
	end      func(context.Context) error
}

// names are the benchmarks, the first of the controller, which needs no guest.
var names = []string{"steady", "create", "expand", "restore"}

func main() {
	inside := flag.Bool("inside", false, "run those of a storage node on this machine (a guest), with the two disks that are named first")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run, asked := outside, flag.Args()
	if *inside {
		run = func(ctx context.Context, which []string) error { return measure(ctx, asked[0], asked[1], which[2:]) }
	}
	if err := run(ctx, asked); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// outside measures the controller, then the storage node.
func outside(ctx context.Context, which []string) error {
	if len(which) == 0 {
		which = names
	}
	for _, name := range which {
		if !slices.Contains(names, name) {
			return fmt.Errorf("no benchmark %q, there are %q", name, names)
		}
	}
	if slices.Contains(which, "steady") {
		if err := steady(ctx); err != nil {
			return err
		}
	}
	which = slices.DeleteFunc(slices.Clone(which), func(name string) bool { return name == "steady" })
	if len(which) == 0 {
		return nil
	}
	return inGuest(ctx, which)
}

// inGuest boots a guest and lets this program measure there.
func inGuest(ctx context.Context, which []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	l, err := lab.Open(ctx, lab.Config{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer l.Close()
	dir := filepath.Dir(self)
	g, err := l.Boot(ctx, lab.GuestSpec{
		Name: "bench", Address: "10.66.0.11", Disks: []string{"2GiB", "256MiB"},
		ShareRO: map[string]string{dir: dir},
		Modules: []string{"configfs", "dm-mod", "nvmet", "nvmet-tcp"},
	})
	if err != nil {
		return err
	}
	_, err = g.Exec(ctx, "mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config")
	if err != nil {
		return err
	}
	return g.Run(ctx, os.Stdout, append([]string{self, "-inside", g.Disks[0], g.Disks[1]}, which...)...)
}

// measure starts an agent and runs the rows that were asked for.
func measure(ctx context.Context, disk, stateDisk string, which []string) (err error) {
	n, err := startNode(ctx, disk, stateDisk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	fsync, err := median(ctx, 15, n.markCost)
	if err != nil {
		return err
	}
	tell("mark_write_and_fsync", fsync.Seconds()*1000, "ms", 0)
	for _, name := range which {
		rows, err := n.rows(ctx, name)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := r.measure(ctx, fsync); err != nil {
				return err
			}
		}
	}
	return nil
}

// rows are those of one benchmark, with all they need in place.
func (n *node) rows(ctx context.Context, name string) ([]row, error) {
	switch name {
	case "create":
		return []row{n.createRow()}, nil
	case "expand":
		r, err := n.expandRow(ctx)
		return []row{r}, err
	default:
		return []row{n.restoreRow(50), n.restoreRow(500)}, makeVolumes(ctx, 500)
	}
}

// tell prints one line; without a goal the value explains another.
func tell(name string, value float64, unit string, goal float64) {
	most := "-"
	if goal > 0 {
		most = fmt.Sprintf("<=%.2f", goal)
	}
	fmt.Printf("%s\t%.2f\t%s\t%s\n", name, value, unit, most)
}

// measure runs all in turn and prints what they took and what they compare to.
func (r row) measure(ctx context.Context, fsync time.Duration) error {
	var works, bases, checks []time.Duration
	var ratios, least, above []float64
	for i := range r.rounds + 1 {
		work, base, check, err := r.round(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if i > 0 { // the first warms up
			works, bases, checks = append(works, work), append(bases, base), append(checks, check)
			ratios = append(ratios, (work-time.Duration(r.marks)*fsync).Seconds()/base.Seconds())
			least = append(least, check.Seconds()/base.Seconds())
			above = append(above, work.Seconds()/check.Seconds())
		}
	}
	tell(r.name, middle(ratios), "ratio", r.goal)
	if r.checked != nil {
		tell(r.name+"_checked", middle(least), "ratio", 0)
		tell(r.name+"_vs_checked", middle(above), "ratio", r.goal)
		tell(r.name+"_raw_checked", middle(checks).Seconds()*1000, "ms", 0)
	}
	tell(r.name+"_agent", middle(works).Seconds()*1000, "ms", 0)
	tell(r.name+"_raw", middle(bases).Seconds()*1000, "ms", 0)
	runs, apart := r.programs()
	tell(r.name+"_programs", float64(runs), "runs", 0)
	if apart > 0 {
		tell(r.name+"_programs", apart.Seconds()*1000, "ms", 0)
	}
	if r.end == nil {
		return nil
	}
	return r.end(ctx)
}

func (r row) round(ctx context.Context) (work, base, check time.Duration, err error) {
	if work, err = r.work(ctx); err != nil {
		return 0, 0, 0, err
	}
	if base, err = r.baseline(ctx); err != nil {
		return 0, 0, 0, fmt.Errorf("baseline: %w", err)
	}
	if r.checked == nil {
		return work, base, 0, nil
	}
	if check, err = r.checked(ctx); err != nil {
		return 0, 0, 0, fmt.Errorf("checked baseline: %w", err)
	}
	return work, base, check, nil
}

// middle is the median.
func middle[T cmp.Ordered](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

func median(ctx context.Context, rounds int, f func(context.Context) (time.Duration, error)) (time.Duration, error) {
	var all []time.Duration
	for range rounds {
		took, err := f(ctx)
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	return middle(all), nil
}
