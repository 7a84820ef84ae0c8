package csiserve

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pillar-csi/pillar/roles/telemetry"
)

// changing lists the calls that change a volume. They hold its lock while they run and
// leave a line in the log; reads do neither.
var changing = map[string]bool{
	csi.Controller_CreateVolume_FullMethodName:              true,
	csi.Controller_DeleteVolume_FullMethodName:              true,
	csi.Controller_ControllerPublishVolume_FullMethodName:   true,
	csi.Controller_ControllerUnpublishVolume_FullMethodName: true,
	csi.Controller_ControllerExpandVolume_FullMethodName:    true,
	csi.Node_NodeStageVolume_FullMethodName:                 true,
	csi.Node_NodeUnstageVolume_FullMethodName:               true,
	csi.Node_NodePublishVolume_FullMethodName:               true,
	csi.Node_NodeUnpublishVolume_FullMethodName:             true,
	csi.Node_NodeExpandVolume_FullMethodName:                true,
}

type unchangedKey struct{}

// Unchanged tells the log that the call of ctx was a retry that found nothing to do.
func Unchanged(ctx context.Context) {
	if flag, ok := ctx.Value(unchangedKey{}).(*atomic.Bool); ok {
		flag.Store(true)
	}
}

// intercept wraps every call: lock, handler, code, one log line. Requests are never
// logged: they carry secrets.
func (s *Server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	unchanged := new(atomic.Bool)
	resp, err := s.locked(context.WithValue(ctx, unchangedKey{}, unchanged), req, info.FullMethod, handler)
	telemetry.RPC{
		Method:   info.FullMethod,
		Code:     CodeOf(err).String(),
		Err:      err,
		Duration: time.Since(start),
		Changed:  changing[info.FullMethod] && !unchanged.Load(),
		Fields:   fieldsOf(req),
	}.Log(s.log)
	return resp, toStatus(err)
}

func (s *Server) locked(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (any, error) {
	key := keyOf(req)
	if key == "" || !changing[method] {
		return handler(ctx, req)
	}
	if _, create := req.(*csi.CreateVolumeRequest); !create && s.volume != nil {
		key = s.volume(key)
	}
	release, err := s.locks.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	defer release()
	return handler(ctx, req)
}

// keyOf names the volume a request is about: its ID, or the name CreateVolume asks for.
func keyOf(req any) string {
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		return r.GetName()
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	}
	return ""
}

func fieldsOf(req any) []zap.Field {
	key := keyOf(req)
	if key == "" {
		return nil
	}
	if _, ok := req.(*csi.CreateVolumeRequest); ok {
		return []zap.Field{zap.String(telemetry.KeyPVName, key)}
	}
	return []zap.Field{zap.String(telemetry.KeyVolumeID, key)}
}
