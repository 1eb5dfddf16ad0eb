# bash completion for sandboxctl: the program itself knows what fits.
_sandboxctl() {
	local -a words=()
	local word text glue= IFS=$'\n'

	# bash splits at "="; what it split belongs together.
	for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
		if [[ $word == = && ${#words[@]} -gt 0 ]]; then
			words[-1]+="="
			glue=1
		elif [[ $glue ]]; then
			words[-1]+=$word
			glue=
		else
			words+=("$word")
		fi
	done
	COMPREPLY=()
	while IFS=$'\t' read -r word text; do
		if [[ $word == :files ]]; then
			compopt -o filenames
			while read -r word; do
				COMPREPLY+=("$word")
			done < <(compgen -f -- "${words[-1]#--*=}")
		else
			# Only what stands behind "=" is replaced.
			[[ ${words[-1]} == --*=* ]] && word=${word#*=}
			COMPREPLY+=("$word")
		fi
	done < <("$1" __complete "${words[@]}" 2>/dev/null)
}
complete -F _sandboxctl sandboxctl
