// Command bench prints one tab-separated line per benchmark, `name value unit goal`. Every
// value is a ratio against a baseline measured beside it in the same run, a count or a
// size in memory, so that it means the same on any machine. It runs inside the lab: it
// boots a guest and starts itself there with -inside; the controller runs beside it.
package main

import (
	"context"
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

// rounds is how often work and baseline are measured in turn; the median ratio is told.
const rounds = 5

// row is one benchmark: the work, the same done as bluntly as possible, and the most the
// work may cost of it.
type row struct {
	name     string
	goal     float64
	work     func(context.Context, string) error // on the given spare disk
	baseline func(context.Context, string) error
}

func main() {
	inside := flag.Bool("inside", false, "run the benchmarks on this machine (a guest)")
	only := flag.Bool("steady", false, "run only the benchmark of the controller at rest, which needs no lab")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := outside
	switch {
	case *inside:
		run = measure
	case *only:
		run = steady
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// outside measures the controller, then boots a guest and lets this program measure there.
func outside(ctx context.Context) error {
	if err := steady(ctx); err != nil {
		return err
	}
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
		Name: "bench", Address: "10.66.0.11", Disks: []string{"2GiB"},
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
	return g.Run(ctx, os.Stdout, self, "-inside", g.Disks[0])
}

// measure runs every row and prints it.
func measure(ctx context.Context) error {
	disk := flag.Arg(0)
	for _, r := range []row{exportRow, lvmRow} {
		ratio, err := r.measure(ctx, disk)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Printf("%s\t%.2f\tratio\t<=%.2f\n", r.name, ratio, r.goal)
	}
	return nil
}

func (r row) measure(ctx context.Context, disk string) (float64, error) {
	var ratios []float64
	for range rounds {
		base, err := took(ctx, disk, r.baseline)
		if err != nil {
			return 0, fmt.Errorf("baseline: %w", err)
		}
		work, err := took(ctx, disk, r.work)
		if err != nil {
			return 0, err
		}
		ratios = append(ratios, work.Seconds()/base.Seconds())
	}
	slices.Sort(ratios)
	return ratios[rounds/2], nil
}

func took(ctx context.Context, disk string, f func(context.Context, string) error) (time.Duration, error) {
	begun := time.Now()
	err := f(ctx, disk)
	return time.Since(begun), err
}
