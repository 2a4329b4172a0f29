{{- /*
The image of a plugin: what the manifest names, such as registry.example.com/hw/gpu-device-plugin:0.1.0,
and what the values say otherwise.

Takes image, and values: the plugin's values of its image.
*/ -}}
{{- define "device-plugins.image" -}}
{{- $last := regexFind "[^/]+$" .image -}}
{{- $registry := .values.registry | default (.image | trimSuffix $last | trimSuffix "/") -}}
{{- $repository := .values.repository | default (regexFind "^[^:@]+" $last) -}}
{{- $version := regexFind "[:@].*$" $last -}}
{{- if or .values.tag .values.digest -}}
{{-   $version = print (ternary (print ":" .values.tag) "" (not (empty .values.tag))) (ternary (print "@" .values.digest) "" (not (empty .values.digest))) -}}
{{- end -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $repository }}{{ $version }}
{{- end -}}
{{- /*
Change the pods of a DaemonSet or a Deployment in place as the values say of their images.

Takes object, file: the plugin's file, and values.
*/ -}}
{{- define "device-plugins.pods" -}}
{{- $image := .values.image | default dict -}}
{{- $named := .file.image -}}
{{- $pod := .object.spec.template.spec -}}
{{- with $image.pullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- range concat $pod.containers ($pod.initContainers | default list) -}}
{{-   if eq .image $named -}}
{{-     $_ := set . "image" (include "device-plugins.image" (dict "image" $named "values" $image)) -}}
{{-     if $image.pullPolicy -}}{{- $_ := set . "imagePullPolicy" $image.pullPolicy -}}{{- end -}}
{{-   end -}}
{{- end -}}
{{- end -}}
