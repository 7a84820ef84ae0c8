package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

type status = v1alpha1.PillarVolumeStateStatus

// then makes a volume, lets before spoil things, and asks for something with its ID.
func then(before func(b *bench), ask func(b *bench, id string) error) func(b *bench) error {
	return func(b *bench) error {
		id := b.made(b.volume)
		before(b)
		return ask(b, id)
	}
}

func nothing(*bench) {}

// after is a then whose record was edited.
func after(edit func(s *status), ask func(b *bench, id string) error) func(b *bench) error {
	return then(func(b *bench) { b.edit(edit) }, ask)
}

// refusing is a then whose agent answers rpc with err.
func refusing(rpc string, err error, ask func(b *bench, id string) error) func(b *bench) error {
	return then(func(b *bench) { b.failing(rpc, err) }, ask)
}

// onAdopted asks for something with the ID of an adopted volume.
func onAdopted(acquired bool, ask func(b *bench, id string) error) func(b *bench) error {
	return func(b *bench) error { return ask(b, b.adoptedRecord(acquired)) }
}

func withID(id string, ask func(b *bench, id string) error) func(b *bench) error {
	return func(b *bench) error { return ask(b, id) }
}

func onW1(b *bench, id string) error { return b.publish(id, "w1", writer) }

func offW1(b *bench, id string) error { return b.unpublish(id, b.name+"w1") }

func deleted(b *bench, id string) error { return b.delete(id) }

// publishedThen publishes to w1 and goes on.
func publishedThen(next func(b *bench)) func(b *bench) {
	return func(b *bench) {
		if err := onW1(b, b.state(b.name+b.volume).Spec.VolumeID); err != nil {
			b.t.Fatal(err)
		}
		next(b)
	}
}

// noCSINode deletes the node's object.
func noCSINode(b *bench) {
	b.drop(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: b.name + "w1"}})
}

// annotate replaces a node's annotations.
func (b *bench) annotate(node string, annotations map[string]string) {
	b.t.Helper()
	b.spoiled = true
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: b.name + node}}
	if err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		b.t.Fatal(err)
	}
	n.Annotations = annotations
	if err := b.api.Update(b.t.Context(), n); err != nil {
		b.t.Fatal(err)
	}
}

// TestCodes_ControllerPublishVolume are the rows of api.md 9.3, 9.4 and block.md 2.5.
func TestCodes_ControllerPublishVolume(t *testing.T) {
	send := func(change func(r *csi.ControllerPublishVolumeRequest)) func(b *bench, id string) error {
		return func(b *bench, id string) error {
			req := &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: b.name + "w1", VolumeCapability: mount(writer)}
			change(req)
			_, err := b.ControllerPublishVolume(b.t.Context(), req)
			return err
		}
	}
	bare := func(change func(r *csi.ControllerPublishVolumeRequest)) func(b *bench) error {
		return withID("a/nvmeof-tcp/lvm-lv/vg0/x", send(change))
	}
	phase := func(p v1alpha1.Phase) func(b *bench) error { return after(func(s *status) { s.Phase = p }, onW1) }
	odd := func(nqn string) func(b *bench) error {
		return then(func(b *bench) { b.annotate("w1", map[string]string{v1alpha1.HostNQNAnnotation: nqn}) }, func(b *bench, id string) error {
			err := onW1(b, id)
			if nodes := b.state(b.name + b.volume).Status.PublishedNodes; len(nodes) > 0 {
				b.t.Errorf("recorded, and never to be revoked: %+v", nodes)
			}
			return err
		})
	}
	onW2 := func(b *bench, id string) error { return b.publish(id, "w2", writer) }
	run(t, "ControllerPublishVolume", map[string]refusal{
		"no volume":                  {withID("", onW1), csiserve.InvalidArgument, "volume_id"},
		"no node":                    {bare(func(r *csi.ControllerPublishVolumeRequest) { r.NodeId = "" }), csiserve.InvalidArgument, "node_id"},
		"no capability":              {bare(func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = nil }), csiserve.InvalidArgument, "volume_capability"},
		"B-63 no protocol does that": {bare(func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = mount(4) }), csiserve.InvalidArgument, "MULTI_NODE_SINGLE_WRITER"},
		"B-63 RWX of a block volume": {then(nothing, send(func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = mount(5) })), csiserve.InvalidArgument, "MULTI_NODE_MULTI_WRITER"},
		"B-15 malformed ID":          {withID("x", onW1), csiserve.NotFound, "does not exist"},
		"unknown volume":             {withID("a/nvmeof-tcp/lvm-lv/vg0/none", onW1), csiserve.NotFound, "does not exist"},
		"B-16 contradicting ID":      {then(nothing, func(b *bench, id string) error { return onW1(b, "x"+id) }), csiserve.FailedPrecondition, "contradicts"},
		"node that is a path":        {then(nothing, send(func(r *csi.ControllerPublishVolumeRequest) { r.NodeId = "../nodes/w1" })), csiserve.NotFound, "CSINode"},
		"unknown node":               {then(noCSINode, onW1), csiserve.NotFound, "CSINode"},
		"B-90 no host NQN":           {then(func(b *bench) { b.annotate("w1", nil) }, onW1), csiserve.FailedPrecondition, "is missing annotation \"pillar-csi.bhyoo.com/nvmeof-host-nqn\""},
		"B-245 a host NQN of none":   {odd("w1"), csiserve.FailedPrecondition, `annotation "pillar-csi.bhyoo.com/nvmeof-host-nqn": invalid`},
		"B-245 a host NQN as a path": {odd("nqn.2014-08.org.nvmexpress:uuid:x/../y"), csiserve.FailedPrecondition, "is not an NQN; restart its node plugin"},
		"B-245 a host NQN of lines":  {odd("nqn.2014-08.org.nvmexpress:uuid:x\n"), csiserve.FailedPrecondition, "is not an NQN"},
		"B-245 a host NQN too long":  {odd("nqn.2014-08.org.nvmexpress:" + strings.Repeat("x", 200)), csiserve.FailedPrecondition, "NQN of 227 bytes, at most 223"},
		"B-87 deleting":              {after(func(s *status) { s.Deleting = true }, onW1), csiserve.FailedPrecondition, "being deleted"},
		"B-87 Provisioning":          {phase(v1alpha1.PhaseProvisioning), csiserve.FailedPrecondition, "cannot publish volume"},
		"B-87 CreatePartial":         {phase(v1alpha1.PhaseCreatePartial), csiserve.FailedPrecondition, "its phase is CreatePartial"},
		"B-87 RecoveryPending":       {phase(v1alpha1.PhaseRecoveryPending), csiserve.FailedPrecondition, "its phase is RecoveryPending"},
		"B-87 import not acquired":   {onAdopted(false, onW1), csiserve.FailedPrecondition, "was never adopted"},
		"B-12 adopted":               {onAdopted(true, onW1), csiserve.NotFound, "allow node"}, // found by its ID; the agent has no export
		"B-59 NodeStaged is Ready":   {phase(v1alpha1.PhaseNodeStaged), 0, ""},
		"B-94 writer elsewhere":      {then(publishedThen(nothing), onW2), csiserve.FailedPrecondition, "is published to another node"},
		"B-93 another mode": {
			then(publishedThen(nothing), send(func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = mount(reader) })),
			csiserve.AlreadyExists, "as SINGLE_NODE_WRITER",
		},
		"B-93 another readonly":   {then(publishedThen(nothing), send(func(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true })), csiserve.AlreadyExists, "readonly false"},
		"B-91 the same again":     {then(publishedThen(nothing), onW1), 0, ""},
		"B-92 still revoking":     {then(publishedThen(func(b *bench) { b.edit(func(s *status) { s.PublishedNodes[0].Revoking = true }) }), onW1), csiserve.Aborted, "revoked"},
		"B-99 agent missing":      {then((*bench).withoutAgent, onW1), csiserve.NotFound, "PillarAgent"},
		"B-99 no address":         {then(func(b *bench) { b.address("") }, onW1), csiserve.Unavailable, "no resolved address"},
		"B-99 gated":              {refusing("AllowInitiator", agentrpc.ErrUnavailable, onW1), csiserve.Unavailable, "allow node"},
		"B-178 stale fence":       {refusing("AllowInitiator", fencing.ErrStale, onW1), csiserve.FailedPrecondition, "allow node"},
		"C grant without export":  {refusing("AllowInitiator", transport.ErrNotFound, onW1), csiserve.NotFound, "allow node"},
		"B-592 no exportSpec":     {after(func(s *status) { s.ExportSpec = nil }, onW1), csiserve.FailedPrecondition, "ExportSpecMissing"},
		"U-3 a twin of the node":  {then(func(b *bench) { b.twin() }, onW1), csiserve.FailedPrecondition, "so an ACL cannot tell them apart"},
		"U-3 a twin, without ACL": {after(func(s *status) { s.ExportSpec.ACLEnabled = false }, func(b *bench, id string) error { b.twin(); return onW1(b, id) }), 0, ""},
	})
}

// twin gives w2 the identity of w1.
func (b *bench) twin() {
	b.annotate("w2", map[string]string{v1alpha1.HostNQNAnnotation: "nqn.2014-08.org.nvmexpress:uuid:" + b.name + "w1"})
}

// TestCodes_ControllerUnpublishVolume are the rows of api.md 9.4 and block.md 2.6.
func TestCodes_ControllerUnpublishVolume(t *testing.T) {
	run(t, "ControllerUnpublishVolume", map[string]refusal{
		"no volume":               {withID("", offW1), csiserve.InvalidArgument, "volume_id"},
		"B-15 malformed ID":       {withID("x", offW1), 0, ""},
		"B-105 unknown volume":    {withID("a/nvmeof-tcp/lvm-lv/vg0/none", offW1), 0, ""},
		"B-105 not published":     {then(nothing, offW1), 0, ""},
		"B-16 contradicting ID":   {then(publishedThen(nothing), func(b *bench, id string) error { return offW1(b, "x"+id) }), csiserve.FailedPrecondition, "contradicts"},
		"B-107 agent missing":     {then(publishedThen((*bench).withoutAgent), offW1), csiserve.FailedPrecondition, "PillarAgent"},
		"B-107 no address":        {then(publishedThen(func(b *bench) { b.address("") }), offW1), csiserve.Unavailable, "no resolved address"},
		"B-109 no export":         {then(publishedThen(func(b *bench) { b.failing("DenyInitiator", transport.ErrNotFound) }), offW1), 0, ""},
		"B-109 revoke failed":     {then(publishedThen(func(b *bench) { b.failing("DenyInitiator", errors.New("odd")) }), offW1), csiserve.Internal, "odd"},
		"B-109 stale fence":       {then(publishedThen(func(b *bench) { b.failing("DenyInitiator", fencing.ErrStale) }), offW1), csiserve.FailedPrecondition, "deny node"},
		"B-203 pool unconfigured": {then(publishedThen(func(b *bench) { b.failing("DenyInitiator", storage.ErrPrecondition) }), offW1), csiserve.FailedPrecondition, "deny node"},
		"CSINode gone":            {then(publishedThen(noCSINode), offW1), 0, ""},
	})
}

// TestCodes_DeleteVolume are the rows of api.md 9.4 and block.md 2.7.
func TestCodes_DeleteVolume(t *testing.T) {
	run(t, "DeleteVolume", map[string]refusal{
		"no volume":              {withID("", deleted), csiserve.InvalidArgument, "volume_id"},
		"B-15 malformed ID":      {withID("x", deleted), 0, ""},
		"B-115 unknown volume":   {withID("a/nvmeof-tcp/lvm-lv/vg0/none", deleted), 0, ""},
		"B-16 contradicting ID":  {then(nothing, func(b *bench, id string) error { return b.delete("x" + id) }), csiserve.FailedPrecondition, "contradicts"},
		"B-116 published":        {then(publishedThen(nothing), deleted), csiserve.FailedPrecondition, "unpublish it first"},
		"B-116 revoking":         {then(publishedThen(func(b *bench) { b.edit(func(s *status) { s.PublishedNodes[0].Revoking = true }) }), deleted), csiserve.FailedPrecondition, "unpublish it first"},
		"B-117 recovery pending": {after(func(s *status) { s.Phase = v1alpha1.PhaseRecoveryPending }, deleted), csiserve.FailedPrecondition, "recovery"},
		"B-119 agent missing":    {then((*bench).withoutAgent, deleted), csiserve.FailedPrecondition, "PillarAgent"},
		"B-119 no address":       {then(func(b *bench) { b.address("") }, deleted), csiserve.Unavailable, "no resolved address"},
		"B-120 adopted":          {onAdopted(true, deleted), csiserve.Unimplemented, "releasing the adopted volume"},
		"B-120 never adopted":    {onAdopted(false, deleted), csiserve.Unimplemented, "releasing the adopted volume"},
		"B-121 no export":        {refusing("UnexportVolume", transport.ErrNotFound, deleted), csiserve.FailedPrecondition, "is exported"}, // so says the fake's kernel
		"B-121 no backend":       {refusing("DeleteVolume", storage.ErrNotFound, deleted), 0, ""},
		"B-215 device busy":      {refusing("DeleteVolume", storage.ErrBusy, deleted), csiserve.FailedPrecondition, "delete volume"},
		"B-178 stale fence":      {refusing("UnexportVolume", fencing.ErrStale, deleted), csiserve.FailedPrecondition, "unexport volume"},
		"B-162 mark unreadable":  {refusing("DeleteVolume", fencing.ErrMark, deleted), csiserve.Internal, "delete volume"},
	})
}

// TestCodes_ControllerExpandVolume are the rows of api.md 9.4 and block.md B-125, B-450 to
// B-461.
func TestCodes_ControllerExpandVolume(t *testing.T) {
	to := func(required, limit int64) func(b *bench, id string) error {
		return func(b *bench, id string) error { _, err := b.expandTo(id, required, limit); return err }
	}
	grow := to(2<<30, 0)
	little := func(b *bench) {
		b.agent.see = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			resp, err := handler(ctx, req)
			if r, ok := resp.(*agentpb.ExpandVolumeResponse); ok {
				r.SizeBytes = 4096
			}
			return resp, err
		}
	}
	run(t, "ControllerExpandVolume", map[string]refusal{
		"no volume":                {withID("", grow), csiserve.InvalidArgument, "volume_id"},
		"B-125 zero bytes":         {then(nothing, to(0, 0)), csiserve.InvalidArgument, "required_bytes"},
		"B-15 malformed ID":        {withID("x", grow), csiserve.NotFound, "does not exist"},
		"B-125 unknown volume":     {withID("a/nvmeof-tcp/lvm-lv/vg0/none", grow), csiserve.NotFound, "does not exist"},
		"B-125 agent missing":      {then((*bench).withoutAgent, grow), csiserve.NotFound, "PillarAgent"},
		"B-125 no address":         {then(func(b *bench) { b.address("") }, grow), csiserve.Unavailable, "no resolved address"},
		"B-125 deleting":           {after(func(s *status) { s.Deleting = true }, grow), csiserve.FailedPrecondition, "cannot expand volume"},
		"B-125 CreatePartial":      {after(func(s *status) { s.Phase = v1alpha1.PhaseCreatePartial }, grow), csiserve.FailedPrecondition, "cannot expand volume"},
		"B-461 preserved LV":       {onAdopted(true, grow), csiserve.FailedPrecondition, "cannot expand volume"},
		"B-451 limit below":        {then(nothing, to(2<<30, 1<<30)), csiserve.OutOfRange, "limit_bytes"},
		"B-452 smaller":            {then(nothing, to(1<<20, 0)), csiserve.OutOfRange, "cannot shrink"},
		"N-46 a smaller answer":    {then(little, grow), csiserve.Internal, "the agent reports 4096 bytes"},
		"B-453 no space":           {then(nothing, to(100<<30, 0)), csiserve.ResourceExhausted, "expand volume"},
		"B-178 stale fence":        {refusing("ExpandVolume", fencing.ErrStale, grow), csiserve.FailedPrecondition, "expand volume"},
		"B-450 the same size":      {then(nothing, to(1<<30, 0)), 0, ""},
		"deadline of the agent":    {refusing("ExpandVolume", context.DeadlineExceeded, grow), csiserve.CodeOf(context.DeadlineExceeded), "expand volume"},
		"published and still used": {then(publishedThen(nothing), grow), 0, ""},
	})
}
