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
