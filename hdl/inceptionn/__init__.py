"""The INCEPTIONN codec: compressor and decompressor of 4 to 32 lanes."""
