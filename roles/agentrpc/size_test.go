package agentrpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// verbose answers every item with an error as long as they come.
type verbose struct {
	agentpb.UnimplementedAgentServiceServer
	request int // bytes of the last one
}

func (v *verbose) ReconcileState(_ context.Context, r *agentpb.ReconcileStateRequest) (*agentpb.ReconcileStateResponse, error) {
	v.request = proto.Size(r)
	resp := &agentpb.ReconcileStateResponse{}
	for _, item := range r.Items {
		err := fmt.Errorf("device of %s: %s: %w", item.VolumeId, strings.Repeat("no such device ", 200), storage.ErrNotFound)
		resp.Results = append(resp.Results, agentrpc.Result(item.VolumeId, err))
	}
	return resp, nil
}

// TestClient_Reconcile_large: a complete request is one message, however many volumes an
// agent has and however much went wrong with them.
func TestClient_Reconcile_large(t *testing.T) {
	const volumes, published = 2500, 30
	a := &verbose{}
	c := dial(t, a, agentrpc.ServerOptions()...)
	var items []agentrpc.Item
	for i := range volumes {
		e := transport.Export{
			Kind: transport.NVMeTCP, Volume: fmt.Sprintf("vg0/pvc-%036d", i), Portal: transport.Portal{Address: "10.0.0.1", Port: 4420}, ACL: true,
		}
		for node := range published {
			e.Initiators = append(e.Initiators, fmt.Sprintf("nqn.2014-08.org.nvmexpress:uuid:%036d", node))
		}
		items = append(items, agentrpc.Item{Token: fencing.Token{UID: fmt.Sprintf("%036d", i), Generation: 12}, Backend: storage.LVMLV, Export: e})
	}
	results, err := c.Reconcile(t.Context(), true, items)
	if err != nil || len(results) != volumes {
		t.Fatalf("Reconcile of %d volumes = %d results, %v", volumes, len(results), err)
	}
	const grpcBound = 4 << 20
	if a.request < grpcBound {
		t.Errorf("the request has %d bytes, too few to show anything: gRPC's own bound is %d", a.request, grpcBound)
	}
}
