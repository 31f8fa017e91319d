package main

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"
	_ "unsafe" // for go:linkname

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/util/parsers"
	"k8s.io/utils/dump"
)

//go:linkname revisionData k8s.io/kubernetes/pkg/controller/statefulset.getPatch
func revisionData(set *apps.StatefulSet) ([]byte, error)

// typesOf tells what Go knows of a type and those in it: a struct's fields as [Go name, JSON name, options, type], in the order of
// their declaration, or what another named type is made of. Types that read and write themselves are not looked into.
func typesOf(root reflect.Type) map[string]any {
	table, seen := map[string]any{}, map[string]reflect.Type{}
	opaque := map[reflect.Type]bool{
		reflect.TypeFor[resource.Quantity]():  true,
		reflect.TypeFor[intstr.IntOrString](): true,
		reflect.TypeFor[metav1.Time]():        true,
		reflect.TypeFor[metav1.FieldsV1]():    true,
	}
	var visit func(reflect.Type)
	visit = func(t reflect.Type) {
		if t.Name() == "" {
			if t.Kind() == reflect.Map {
				visit(t.Key())
			}
			visit(t.Elem())
			return
		}
		name := t.String()
		if other, known := seen[name]; known {
			if other != t {
				panic("two types are called " + name)
			}
			return
		}
		if seen[name] = t; opaque[t] || t.PkgPath() == "" {
			return
		}
		if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			panic(name + " reads itself")
		}
		switch t.Kind() {
		case reflect.Struct:
			fields := [][4]string{}
			for i := range t.NumField() {
				field := t.Field(i)
				name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
				fields = append(fields, [4]string{field.Name, name, options, field.Type.String()})
				visit(field.Type)
			}
			table[name] = fields
		case reflect.Map:
			table[name] = "map[" + t.Key().String() + "]" + t.Elem().String()
			visit(t.Key())
			visit(t.Elem())
		default:
			table[name] = t.Kind().String()
		}
	}
	visit(root)
	return table
}

func withTemplate(template v1.PodTemplateSpec) *apps.StatefulSet {
	return &apps.StatefulSet{Spec: apps.StatefulSetSpec{Template: template}}
}

type parsedQuantity struct {
	Text    string `json:"text"`
	Rounded string `json:"rounded"`
	Dump    string `json:"dump"`
	Equal   bool   `json:"equal"`
}

func init() {
	register("podTemplateTypes", func(struct{}) (map[string]any, error) {
		return typesOf(reflect.TypeFor[v1.PodTemplateSpec]()), nil
	})
	register("revisionData", func(in v1.PodTemplateSpec) (string, error) {
		data, err := revisionData(withTemplate(in))
		return string(data), err
	})
	// What a StatefulSet's data would be after going back to a revision: as the controller does it, defaulting included.
	register("restoredRevisionData", func(in struct {
		Template v1.PodTemplateSpec `json:"template"`
		Data     string             `json:"data"`
	}) (string, error) {
		revision := &apps.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(in.Data)}}
		set, err := statefulset.ApplyRevision(withTemplate(in.Template), revision)
		if err != nil {
			return "", err
		}
		legacyscheme.Scheme.Default(set)
		data, err := revisionData(set)
		return string(data), err
	})
	register("templateHash", func(in struct {
		Template       v1.PodTemplateSpec `json:"template"`
		CollisionCount *int32             `json:"collisionCount"`
	}) ([2]string, error) {
		_ = time.Local.String() // looks for the machine's time zone, as any log line does
		template := in.Template.DeepCopy()
		return [2]string{controller.ComputeHash(template, in.CollisionCount), dump.ForHash(*template)}, nil
	})
	register("quantity", func(in [2]string) (*parsedQuantity, error) {
		one, err := resource.ParseQuantity(in[0])
		other, otherErr := resource.ParseQuantity(in[1])
		if err := errors.Join(err, otherErr); err != nil {
			return nil, err
		}
		text, err := json.Marshal(one)
		out := parsedQuantity{Text: string(text), Dump: dump.ForHash(one.DeepCopy()), Equal: one.DeepCopy().Equal(other)}
		one.RoundUp(resource.Milli)
		out.Rounded = one.String()
		return &out, err
	})
	register("imageTag", func(in string) (string, error) {
		_, tag, _, _ := parsers.ParseImageName(in)
		return tag, nil
	})
}
