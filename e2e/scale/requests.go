package scale

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Requests counts what the API server answered, by "VERB resource" as in PATCH pods/status.
// Leases are left out: they are the price of being there, not of a volume.
type Requests map[string]int

var (
	requestTotal = regexp.MustCompile(`(?m)^apiserver_request_total\{(.*)\} ([0-9.e+]+)$`)
	label        = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// Requests reads the API server's counters.
func (w *World) Requests(ctx context.Context) (Requests, error) {
	data, err := w.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read metrics of the API server: %w", err)
	}
	return parseRequests(data), nil
}

func parseRequests(metrics []byte) Requests {
	out := Requests{}
	for _, line := range requestTotal.FindAllSubmatch(bytes.TrimSpace(metrics), -1) {
		labels := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(string(line[1]), -1) {
			labels[l[1]] = l[2]
		}
		if labels["resource"] == "" || labels["resource"] == "leases" {
			continue
		}
		name := labels["resource"]
		if sub := labels["subresource"]; sub != "" {
			name += "/" + strings.TrimPrefix(sub, "/")
		}
		n, _ := strconv.ParseFloat(string(line[2]), 64)
		out[labels["verb"]+" "+name] += int(n)
	}
	return out
}

// Since answers what was asked after before.
func (r Requests) Since(before Requests) Requests {
	out := Requests{}
	for key, n := range r {
		if n -= before[key]; n > 0 {
			out[key] = n
		}
	}
	return out
}

// Split counts writes, and reads that are not watches.
func (r Requests) Split() (writes, reads int) {
	for key, n := range r {
		switch verb, _, _ := strings.Cut(key, " "); verb {
		case "GET", "LIST":
			reads += n
		case "WATCH", "CONNECT", "PROXY":
		default:
			writes += n
		}
	}
	return writes, reads
}

// String lists the counters, the largest first.
func (r Requests) String() string {
	keys := slices.SortedFunc(maps.Keys(r), func(a, b string) int { return r[b] - r[a] })
	var b strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&b, "%7d %s\n", r[key], key)
	}
	return b.String()
}
