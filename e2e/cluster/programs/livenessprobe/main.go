// Command livenessprobe stands in for the CSI livenessprobe in the lab, with the flags of
// the real one that pillar's manifests use: GET /healthz asks the driver's Identity.Probe.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	address := flag.String("csi-address", "/run/csi/socket", "socket of the driver")
	port := flag.Int("health-port", 9808, "TCP port of /healthz")
	endpoint := flag.String("http-endpoint", "", "address of /healthz instead of --health-port")
	timeout := flag.Duration("probe-timeout", time.Second, "how long the driver may take to answer")
	flag.Int("v", 0, "log level; accepted, not used")
	flag.Parse()
	conn, err := grpc.NewClient("unix://"+*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatalf("connect to %s: %v", *address, err)
	}
	driver := csi.NewIdentityClient(conn)
	http.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), *timeout)
		defer cancel()
		if err := probe(ctx, driver); err != nil {
			log.Printf("probe: %v", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	if *endpoint == "" {
		*endpoint = fmt.Sprintf(":%d", *port)
	}
	log.Fatal(http.ListenAndServe(*endpoint, nil))
}

// probe is nil when the driver says it is ready; a missing field means ready (CSI
// specification, ProbeResponse).
func probe(ctx context.Context, driver csi.IdentityClient) error {
	answer, err := driver.Probe(ctx, &csi.ProbeRequest{})
	if err != nil {
		return err
	}
	if answer.Ready != nil && !answer.Ready.Value {
		return fmt.Errorf("driver is not ready")
	}
	return nil
}
