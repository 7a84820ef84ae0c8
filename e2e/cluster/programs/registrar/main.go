// Command registrar stands in for csi-node-driver-registrar in the lab, with the flags of
// the real one that pillar's manifests use: it tells the kubelet where the driver's socket
// is. The protocol is k8s.io/kubelet/pkg/apis/pluginregistration/v1.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// askWait is how long the driver may take to start; the real program waits 30 s and more.
const askWait = time.Minute

// server answers the kubelet.
type server struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
	refused        chan string // the kubelet's reason
}

func (s *server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: s.name, Endpoint: s.endpoint,
		SupportedVersions: []string{"1.0.0"}}, nil
}

func (s *server) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("kubelet: registered %t %s", status.PluginRegistered, status.Error)
	if !status.PluginRegistered {
		s.refused <- status.Error
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	address := flag.String("csi-address", "/run/csi/socket", "socket of the driver in this container")
	path := flag.String("kubelet-registration-path", "", "socket of the driver on the node")
	folder := flag.String("plugin-registration-path", "/registration", "the kubelet's plugins_registry in this container")
	flag.Int("v", 0, "log level; accepted, not used")
	flag.Parse()
	name, err := driverName(*address)
	if err != nil {
		log.Fatalf("ask the driver for its name: %v", err)
	}
	if err := serve(filepath.Join(*folder, name+"-reg.sock"), name, *path); err != nil {
		log.Fatalf("register %s: %v", name, err)
	}
}

func driverName(address string) (string, error) {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askWait)
	defer cancel()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	return info.GetName(), err
}

// serve answers the kubelet until it refuses the driver: then the container restarts and
// tries again, as the real program does.
func serve(socket, name, endpoint string) error {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := &server{name: name, endpoint: endpoint, refused: make(chan string, 1)}
	g := grpc.NewServer()
	registration.RegisterRegistrationServer(g, s)
	go func() {
		log.Printf("the kubelet refused: %s", <-s.refused)
		os.Exit(1)
	}()
	log.Printf("driver %s at %s, waiting for the kubelet at %s", name, endpoint, socket)
	return g.Serve(listener)
}
