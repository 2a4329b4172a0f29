"""The shell's side of completion, which reads the ``--help`` of programs."""

from typing import Final

SCRIPT: Final = r"""
declare -gA _deviceplugin_helps

# Set words, options and values (what may follow the option in $1) from the help of "${@:2}".
_deviceplugin_read() {
  local option=$1 line left last is_listed='' one
  shift
  if [[ -z ${_deviceplugin_helps[$*]+x} ]]; then
    _deviceplugin_helps[$*]=$(COLUMNS=1000 NO_COLOR=1 "$@" --help 2>/dev/null </dev/null)
  fi
  words=() options=() values=() takes_value=''
  while IFS= read -r line; do
    left=${line#"${line%%[! ]*}"} left=${left%%  *}
    case $line in
      commands:*) is_listed=yes ;;
      [!\ ]*) is_listed='' ;;
      '  -'*)
        last=${left##* }
        for one in ${left//,/ }; do
          [[ $one != --* ]] || options+=("$one")
          [[ $one != "$option" || $last == -* ]] || takes_value=yes
          [[ $one != "$option" || $last != *['{|']* ]] || values=(${last//['{}[],|']/ })
        done ;;
      '  {'*) words+=(${left//['{},']/ }) ;;
      '  '[a-z]*|'    '[a-z]*)
        [[ -z $is_listed || $left == *\ * ]] || words+=("$left") ;;
    esac
  done <<<"${_deviceplugin_helps[$*]}"
}

_deviceplugin() {
  local -a words options values asked=("${COMP_WORDS[0]}")
  local takes_value='' index=$COMP_CWORD current=${COMP_WORDS[COMP_CWORD]} previous
  if [[ $current == '=' ]]; then current=''; else ((index--)); fi
  [[ ${COMP_WORDS[index]} != '=' || $index -lt 1 ]] || ((index--))
  previous=${COMP_WORDS[index]}
  COMPREPLY=()
  [[ " ${COMP_WORDS[*]:1:COMP_CWORD-1} " != *' -- '* ]] || return 0
  _deviceplugin_read "$previous" "${asked[@]}"
  if ((COMP_CWORD > 1)) && [[ " ${words[*]} " == *" ${COMP_WORDS[1]} "* ]]; then
    asked+=("${COMP_WORDS[1]}")
  elif [[ ${asked[0]##*/} == kubectl-deviceplugin && $current == -* ]]; then
    asked+=(fleet)
  fi
  ((${#asked[@]} == 1)) || _deviceplugin_read "$previous" "${asked[@]}"
  if [[ $previous == -* && -n $takes_value ]]; then
    options=() words=("${values[@]}")
  fi
  [[ $current == -* ]] || options=()
  COMPREPLY=($(compgen -W "${options[*]:-${words[*]}}" -- "$current"))
}
"""
"""Functions of bash 4.4 and newer. ``_deviceplugin`` completes any program whose help is ours."""
