package scale

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseRequests(t *testing.T) {
	metrics := `# HELP apiserver_request_total ...
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="/status",verb="PATCH",version="v1"} 3
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="/status",verb="PATCH",version="v1"} 1
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 7
apiserver_request_total{code="200",resource="",subresource="/readyz",verb="GET"} 7
apiserver_request_total{code="200",resource="nodes",subresource="",verb="LIST"} 1.2e+03
apiserver_request_total{code="0",resource="nodes",subresource="",verb="WATCH"} 2
`
	got := parseRequests([]byte(metrics))
	if diff := cmp.Diff(Requests{"PATCH pods/status": 4, "LIST nodes": 1200, "WATCH nodes": 2}, got); diff != "" {
		t.Errorf("parseRequests() (-want +got):\n%s", diff)
	}
	since := got.Since(Requests{"PATCH pods/status": 1, "LIST nodes": 1200})
	if writes, reads := since.Split(); writes != 3 || reads != 0 {
		t.Errorf("Split(%v) = %d, %d, want 3, 0", since, writes, reads)
	}
}

func TestParseUsage(t *testing.T) {
	status := "Name:\tpillar\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n"
	stat := "7 (a) name) S 1 7 7 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 9 0 1 2 3"
	want := Usage{Memory: 1 << 20, Peak: 2 << 20, CPU: 3 * time.Second}
	if got := parseUsage(status, stat); got != want {
		t.Errorf("parseUsage() = %v, want %v", got, want)
	}
}
