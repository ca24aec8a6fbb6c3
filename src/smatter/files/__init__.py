"""What every room needs of the disk: safe JSON and safetensors, atomic writes, hashes."""
