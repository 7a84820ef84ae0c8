package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pillar-csi/pillar/e2e"
)

const (
	samples = "deploy/samples/"
	system  = "pillar-csi-system"
	volume  = "vg0" // the volume group of the samples
)

// checksum reads back everything the pod wrote.
var checksum = []string{"exec", "demo", "--", "sh", "-c", "cat /data/* | sha256sum"}

// install makes the volume group its owner already has, and applies pillar's manifests.
func (s *story) install(ctx context.Context) error {
	s.tell.step("Install pillar; the storage box already has a volume group")
	if err := s.storage.MakeVG(ctx, volume); err != nil {
		return err
	}
	if _, err := s.look(ctx, s.storage.Guest, "DM_DISABLE_UDEV=1 vgs "+volume); err != nil {
		return err
	}
	s.tell.say("Applying deploy/" + e2e.Manifests() + " as kubectl apply -k would, with the binary of this checkout.")
	if err := e2e.Install(ctx, s.cluster, "deploy", ""); err != nil {
		return err
	}
	return s.do(ctx,
		[]string{"-n", system, "rollout", "status", "deployment/pillar-csi-controller", "--timeout=120s"},
		[]string{"-n", system, "rollout", "status", "daemonset/pillar-csi-node", "--timeout=120s"},
		[]string{"get", "nodes", "-o", "wide"})
}

// describe tells pillar about the storage box in four small resources.
func (s *story) describe(ctx context.Context) error {
	s.tell.step("Describe the storage: an agent, a store, a protocol, a class")
	for _, r := range []struct{ file, object string }{
		{"1-agent.yaml", "pillaragent/storage-1"},
		{"2-store.yaml", "pillarstore/vg0"},
		{"3-protocol.yaml", "pillarprotocol/nvme"},
		{"4-class.yaml", "pillarstorageclass/pillar-lvm"},
	} {
		err := s.do(ctx, []string{"apply", "-f", samples + r.file},
			[]string{"wait", "--for=condition=Ready", r.object, "--timeout=120s"})
		if err != nil {
			return err
		}
	}
	return s.do(ctx, []string{"get", "pillaragents,pillarstores,pillarprotocols,pillarstorageclasses"})
}

// claim asks for a volume and lets a pod write to it.
func (s *story) claim(ctx context.Context) error {
	s.tell.step("Claim 1 GiB and let a pod on worker-1 write to it")
	s.tell.say("storage-1 and worker-2 take no pods for now, so that the data crosses the network from worker-1.")
	err := s.do(ctx,
		[]string{"cordon", "storage-1"}, []string{"cordon", "worker-2"},
		[]string{"apply", "-f", samples + "5-claim.yaml"},
		[]string{"wait", "--for=jsonpath={.status.phase}=Bound", "pvc/demo-data", "--timeout=60s"},
		[]string{"apply", "-f", samples + "6-pod.yaml"},
		[]string{"wait", "--for=condition=Ready", "pod/demo", "--timeout=90s"},
		[]string{"get", "pvc,pv,pillarvolumestates"},
		[]string{"exec", "demo", "--", "sh", "-c", "head -c 8388608 /dev/urandom > /data/random && sync && ls -l /data"})
	if err != nil {
		return err
	}
	s.sum, err = s.kubectl(ctx, checksum...)
	return err
}

// where shows the same bytes at each layer.
func (s *story) where(ctx context.Context) error {
	s.tell.step("Where the bytes are: logical volume, NVMe target, worker")
	s.tell.say("The tag pillar-volume says whose record the volume belongs to. The number below ports/ is configfs's name of the port, which listens on 4420.")
	looks := []struct{ machine, script string }{
		{"storage-1", "DM_DISABLE_UDEV=1 lvs -o lv_name,lv_size,lv_tags " + volume},
		{"storage-1", "cd /sys/kernel/config/nvmet && find subsystems ports -path '*device_path' -o -path '*device_uuid' -o -path '*/enable' -o -type l | sort | " +
			"while read -r f; do if [ -L $f ]; then echo $f; else echo \"$f: $(cat $f)\"; fi; done"},
		{"worker-1", "grep -H . /sys/class/nvme/nvme*/{subsysnqn,address,state}; grep nvme /proc/mounts"},
	}
	for _, l := range looks {
		if _, err := s.look(ctx, s.cluster.Node(l.machine), l.script); err != nil {
			return err
		}
	}
	return nil
}

// move puts the pod on the other worker and compares what it reads there.
func (s *story) move(ctx context.Context) error {
	s.tell.step("Move the pod to worker-2 and read the data back")
	err := s.do(ctx,
		[]string{"delete", "pod", "demo", "--grace-period=1", "--timeout=60s"},
		[]string{"uncordon", "worker-2"}, []string{"cordon", "worker-1"},
		[]string{"apply", "-f", samples + "6-pod.yaml"},
		[]string{"wait", "--for=condition=Ready", "pod/demo", "--timeout=90s"},
		[]string{"get", "pod", "demo", "-o", "wide"})
	if err != nil {
		return err
	}
	node, err := s.kubectl(ctx, "get", "pod", "demo", "-o", "jsonpath={.spec.nodeName}")
	if err != nil {
		return err
	}
	if node != "worker-2" {
		return fmt.Errorf("the pod runs on %s, not on worker-2", node)
	}
	sum, err := s.kubectl(ctx, append([]string{}, checksum...)...)
	if err != nil {
		return err
	}
	if strings.TrimSpace(sum) != strings.TrimSpace(s.sum) {
		return fmt.Errorf("the data changed: wrote %s, read %s", strings.TrimSpace(s.sum), strings.TrimSpace(sum))
	}
	s.tell.say("The checksum is the same.")
	return nil
}

// remove deletes everything in the documented order and proves that nothing is left.
func (s *story) remove(ctx context.Context) error {
	s.tell.step("Delete everything and prove that nothing is left")
	err := s.do(ctx,
		[]string{"delete", "-f", samples + "6-pod.yaml", "--grace-period=1", "--timeout=60s"},
		[]string{"delete", "-f", samples + "5-claim.yaml", "--timeout=60s"},
		[]string{"wait", "--for=delete", "pillarvolumestates", "--all", "--timeout=60s"})
	if err != nil {
		return err
	}
	left := []error{s.storage.Left(ctx, []string{volume})}
	for _, w := range s.workers {
		left = append(left, w.Left(ctx))
	}
	if err := errors.Join(left...); err != nil {
		return err
	}
	s.tell.say("No logical volume, no subsystem, no NVMe controller, no mount, no stage record. The fencing mark stays, so that a stale controller can never touch a volume of that name:")
	if _, err := s.look(ctx, s.storage.Guest, "cat "+e2e.MarksDir+"/*"); err != nil {
		return err
	}
	for _, file := range []string{"4-class.yaml", "3-protocol.yaml", "2-store.yaml", "1-agent.yaml"} {
		if err := s.do(ctx, []string{"delete", "-f", samples + file, "--timeout=60s"}); err != nil {
			return err
		}
	}
	return s.do(ctx, []string{"uncordon", "storage-1"}, []string{"uncordon", "worker-1"})
}
