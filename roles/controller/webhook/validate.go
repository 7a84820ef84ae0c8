package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// findings are what a check has to say: refusals, all of them, and warnings.
type findings struct {
	errs     field.ErrorList
	warnings admission.Warnings
}

func (f *findings) warn(format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf(format, args...))
}

// later warns of what only a later version serves.
func (f *findings) later(all []string) {
	for _, what := range all {
		f.warn("%s: until then no volume can be made", what)
	}
}

// add takes over problems of settings.
func (f *findings) add(problems settings.Problems) {
	for _, p := range problems {
		why := p.Why
		if p.Fix != "" {
			why += "; " + p.Fix
		}
		if p.Value == "" {
			f.errs = append(f.errs, field.Forbidden(field.NewPath(p.Path), why))
			continue
		}
		f.errs = append(f.errs, field.Invalid(field.NewPath(p.Path), p.Value, why))
	}
}

// validator judges creations and updates of one kind by its check. The error of a check is
// a failure to look; old is the zero value at a creation.
type validator[T client.Object] struct {
	kind  string
	check func(ctx context.Context, old, obj T) (findings, error)
}

// ValidateCreate judges a new object.
func (v validator[T]) ValidateCreate(ctx context.Context, obj T) (admission.Warnings, error) {
	var none T
	return v.ValidateUpdate(ctx, none, obj)
}

// ValidateUpdate judges a change.
func (v validator[T]) ValidateUpdate(ctx context.Context, old, obj T) (admission.Warnings, error) {
	found, err := v.check(ctx, old, obj)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if len(found.errs) > 0 {
		kind := v1alpha1.GroupVersion.WithKind(v.kind).GroupKind()
		return found.warnings, apierrors.NewInvalid(kind, obj.GetName(), found.errs)
	}
	return found.warnings, nil
}

// ValidateDelete lets deletions pass: finalizers order them.
func (v validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

// checks are the rules that need the API server.
type checks struct {
	api       client.Client
	namespace string // of CHAP Secrets
}

// find reads an object that another names. An absent one is a warning: objects may
// be applied in any order.
func (c checks) find(ctx context.Context, f *findings, kind, namespace, name, consequence string, obj client.Object) (bool, error) {
	if !settings.ObjectName(name) { // the schema or a condition says so
		return false, nil
	}
	err := c.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		f.warn("%s %q does not exist (yet); %s", kind, name, consequence)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	return true, nil
}

func (c checks) agent(ctx context.Context, old, agent *v1alpha1.PillarAgent) (f findings, err error) {
	spec := field.NewPath("spec")
	if ext := agent.Spec.External; old != nil && ext != nil && old.Spec.External != nil && ext.Port != old.Spec.External.Port {
		f.errs = append(f.errs, field.Forbidden(spec.Child("external", "port"),
			fmt.Sprintf("external.port is immutable: was %d, asked for %d", old.Spec.External.Port, ext.Port)))
	}
	f.add(settings.CheckAgent(agent.Spec))
	if ref := agent.Spec.NodeRef; ref != nil {
		_, err = c.find(ctx, &f, "Node", "", ref.Name, "the agent is not Ready until it joins the cluster", metadata("v1", "Node"))
	}
	return f, err
}

func (c checks) store(ctx context.Context, _, store *v1alpha1.PillarStore) (f findings, err error) {
	f.add(settings.CheckStore(store.Spec))
	if lvm := store.Spec.Backend.LVM; lvm != nil && lvm.ProvisioningMode == v1alpha1.ProvisioningThin && lvm.ThinPool == "" {
		f.warn("spec.backend.lvm.provisioningMode is thin without a thinPool; every claim will be refused until lvm.thinPool is set")
	}
	_, err = c.find(ctx, &f, "PillarAgent", "", store.Spec.AgentRef, "the store is not Ready until it is created", &v1alpha1.PillarAgent{})
	return f, err
}

// protocol warns of a missing Secret: it may still come.
func (c checks) protocol(ctx context.Context, _, p *v1alpha1.PillarProtocol) (f findings, err error) {
	if n := p.Spec.Protocol.NVMeOFTCP; n != nil && n.ReconnectDelay != nil && *n.ReconnectDelay == 0 {
		f.warn("spec.protocol.nvmeofTcp.reconnectDelay is 0, which the kernel refuses: pods with new volumes will not start; use at least 1")
	}
	f.later(settings.NotYet(v1alpha1.Resolved{Protocol: p.Spec.Protocol}))
	i := p.Spec.Protocol.ISCSI
	if i == nil || i.Auth == nil || i.Auth.SecretRef == nil || i.Auth.Method == v1alpha1.AuthNone {
		return f, nil
	}
	consequence := fmt.Sprintf("the protocol is not Ready until it is created in namespace %s", c.namespace)
	_, err = c.find(ctx, &f, "Secret", c.namespace, i.Auth.SecretRef.Name, consequence, metadata("v1", "Secret"))
	return f, err
}

func (c checks) class(ctx context.Context, _, class *v1alpha1.PillarStorageClass) (f findings, err error) {
	const consequence = "the class is not Ready until it is created"
	store, protocol := &v1alpha1.PillarStore{}, &v1alpha1.PillarProtocol{}
	var storeSpec *v1alpha1.PillarStoreSpec
	var protocolSpec *v1alpha1.PillarProtocolSpec
	if ok, err := c.find(ctx, &f, "PillarStore", "", class.Spec.StoreRef, consequence, store); err != nil {
		return f, err
	} else if ok {
		storeSpec = &store.Spec
	}
	if ok, err := c.find(ctx, &f, "PillarProtocol", "", class.Spec.ProtocolRef, consequence, protocol); err != nil {
		return f, err
	} else if ok {
		protocolSpec = &protocol.Spec
	}
	bad := settings.CheckClass(class.Spec, storeSpec, protocolSpec)
	f.add(bad)
	if storeSpec != nil && protocolSpec != nil && len(bad) == 0 {
		f.later(settings.ClassNotYet(class.Spec, *protocolSpec))
	}
	return f, nil
}

// metadata asks for an object's metadata alone: of a Secret no more is anybody's business.
func metadata(version, kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
}
