"""The StatefulSet controller: pods that keep their names and their claims."""
