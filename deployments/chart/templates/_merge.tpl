{{- /*
Merge a patch into a map, in place, strategically: maps by key, and the lists named in "keys" by that
field of their entries. Other lists are replaced. Null, and an entry with "$patch: delete", remove.

Takes place, patch and keys.
*/ -}}
{{- define "device-plugins.merge" -}}
{{- $place := .place -}}
{{- $keys := .keys -}}
{{- range $name, $value := .patch -}}
{{-   $old := get $place $name -}}
{{-   if kindIs "invalid" $value -}}
{{-     $_ := unset $place $name -}}
{{-   else if and (kindIs "map" $value) (kindIs "map" $old) -}}
{{-     include "device-plugins.merge" (dict "place" $old "patch" $value "keys" $keys) -}}
{{-   else if and (hasKey $keys $name) (kindIs "slice" $old) -}}
{{-     $by := get $keys $name -}}
{{-     $changes := dict -}}
{{-     range $value -}}
{{-       $_ := set $changes (get . $by) . -}}
{{-     end -}}
{{-     $merged := list -}}
{{-     range $old -}}
{{-       $id := get . $by -}}
{{-       $change := get $changes $id | default dict -}}
{{-       $_ := unset $changes $id -}}
{{-       if ne (get $change "$patch") "delete" -}}
{{-         include "device-plugins.merge" (dict "place" . "patch" $change "keys" $keys) -}}
{{-         $merged = append $merged . -}}
{{-       end -}}
{{-     end -}}
{{-     range $value -}}
{{-       if hasKey $changes (get . $by) -}}
{{-         $merged = append $merged . -}}
{{-       end -}}
{{-     end -}}
{{-     $_ := set $place $name $merged -}}
{{-   else -}}
{{-     $_ := set $place $name $value -}}
{{-   end -}}
{{- end -}}
{{- end -}}
