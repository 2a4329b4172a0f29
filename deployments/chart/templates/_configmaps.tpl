{{- /*
Put the files of the values into ConfigMaps, in place, and print the checksum of the changed ones: pods
are replaced when it changes.

Takes objects, plugin, file: the plugin's file, and values.
*/ -}}
{{- define "device-plugins.configmaps" -}}
{{- $wanted := deepCopy (.values.configMaps | default dict) -}}
{{- $own := .file.config -}}
{{- $_ := set $wanted $own (dict "config.yaml" (.values.config | default dict)) -}}
{{- $changed := dict -}}
{{- range .objects -}}
{{-   $map := .metadata.name -}}
{{-   if and (eq .kind "ConfigMap") (hasKey $wanted $map) -}}
{{-     $files := get $wanted $map -}}
{{-     $data := .data -}}
{{-     range $name, $content := $files -}}
{{-       $text := $content -}}
{{-       if not (kindIs "string" $content) -}}
{{- /* Left as it is written, with its comments, if it says the same. */ -}}
{{-         $same := eq (toJson $content) (get $data $name | default "{}" | fromYaml | toJson) -}}
{{-         $text = ternary (get $data $name) (print (toYaml $content) "\n") $same -}}
{{-       end -}}
{{-       if ne $text (get $data $name) -}}
{{-         $_ := set $data $name $text -}}
{{-         $_ := set $changed (print $map "/" $name) $text -}}
{{-       end -}}
{{-     end -}}
{{-     $_ := unset $wanted $map -}}
{{-   end -}}
{{- end -}}
{{- if $wanted -}}
{{-   fail (printf "%s.configMaps: there is no %s: set its component to true" .plugin (keys $wanted | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if $changed -}}{{ toJson $changed | sha256sum }}{{- end -}}
{{- end -}}
